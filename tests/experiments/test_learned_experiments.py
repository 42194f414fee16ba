"""The learned-head experiments: the interval regression against known answers, and smoke runs."""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit

SCRIPTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(autouse=True)
def scripts_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


def test_probability_of_an_interval():
    from _interval_regression import log_probability

    a, b = np.array([-np.inf, -1.0, 2.0, -np.inf, 700.0]), np.array([0.3, 2.0, np.inf, np.inf, 701.0])
    expected = np.log(expit(b[:4]) - expit(a[:4]))
    np.testing.assert_allclose(log_probability(a, b)[:4], expected, atol=1e-12)
    assert log_probability(a, b)[4] == pytest.approx(-700 + np.log(1 - np.exp(-1)))


def test_interval_regression_finds_what_made_the_data(rng):
    from _interval_regression import fit

    x = rng.normal(size=(4000, 3))
    latent = x @ np.array([1.0, -0.5, 0.0]) + 0.3 + 0.4 * rng.logistic(size=4000)
    width = rng.uniform(0.05, 1.0, size=4000)
    low = np.where(latent < -1.5, -np.inf, np.floor(latent / width) * width)
    high = np.where(latent < -1.5, -1.5, np.floor(latent / width) * width + width)
    constant = np.column_stack([x, np.ones(4000)])
    found = fit(constant, low, high, 1e-3)
    np.testing.assert_allclose(found.weights / found.spread, [1.0, -0.5, 0.0, 0.0], atol=0.05)
    assert found.scale == pytest.approx(0.4, abs=0.03)
    held = found.location(np.array([[1.0, 0.0, 0.0, 1.0]])) - found.location(np.array([[0.0, 0, 0, 1]]))
    assert held[0] == pytest.approx(1.0, abs=0.05)
    # A stationary point of the likelihood it claims to maximise.
    total = lambda w: -fit_with(found, w).log_score(constant, low, high).sum() + 1e-3 * w @ w
    slope = approx_fprime(found.weights, total, 1e-6)
    assert np.abs(slope[:3]).max() < 0.5


def fit_with(found, weights):
    from dataclasses import replace

    return replace(found, weights=weights)


def test_folds_never_split_a_head(rng):
    from _interval_regression import folds_of

    groups = np.repeat([f"head {i}" for i in range(11)], 4)
    fold = folds_of(groups, 3, rng)
    assert all(len(set(fold[groups == name])) == 1 for name in groups)
    assert set(fold) == {0, 1, 2}
    with pytest.raises(ValueError, match="11 groups cannot make 12 folds"):
        folds_of(groups, 12, rng)


def test_features_do_not_see_the_gauge_where_they_should_not(rng):
    from dataclasses import replace

    from _heldout_features import head_features

    from attnlab.learned import CapturedHead

    protocol = tomllib.loads((SCRIPTS / "heldout_protocol.toml").read_text())
    q, k = rng.normal(size=(8, 3)), rng.normal(size=(8, 3))
    head = CapturedHead("toy", "", 0, 0, 0, 0.5 * q @ k.T, q, k, 0.5)
    gauge = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    moved = replace(head, q=(q + 1.0) @ gauge, k=k @ np.linalg.inv(gauge).T)
    moved = replace(moved, logits=0.5 * moved.q @ moved.k.T)
    first, second = (head_features(h, [1.0], [0.3])[0] for h in (head, moved))
    for name in protocol["features"]["intrinsic"]:
        assert first[name] == pytest.approx(second[name], abs=0.02), name  # kappa is bracketed within 1%
    assert abs(first["log query norm"] - second["log query norm"]) > 0.1
    everything = [name for block in protocol["features"].values() for name in block]
    assert all(np.isfinite(first[name]) for name in everything)
    assert len(set(everything)) == len(everything)


def test_the_committed_results_follow_the_committed_protocol():
    results = SCRIPTS / "results" / "heldout" / "results.parquet"
    about = json.loads(pq.read_schema(results).metadata[b"attnlab"])
    assert about["follows_protocol"]
    assert (
        about["protocol_sha256"]
        == hashlib.sha256((SCRIPTS / "heldout_protocol.toml").read_bytes()).hexdigest()
    )


@pytest.mark.parametrize("name", ["learned_heads", "heldout"])
def test_smoke_preset(name, tmp_path):
    folders = ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    command = [sys.executable, f"{name}.py", "--preset", "smoke", *folders]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "results.parquet")
    about = json.loads(table.schema.metadata[b"attnlab"])
    rows = table.to_pylist()
    assert len(rows) == {"learned_heads": 6, "heldout": 28}[name]
    assert all(1 <= row["lower"] <= row["upper"] for row in rows)
    said = (tmp_path / "report.md").read_text()
    assert "**Verdict.**" in said
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    if name == "learned_heads":
        assert all(row["verified"] for row in rows)
    else:
        assert not about["follows_protocol"]
        assert about["protocol_sha256"] in said
        assert all(np.isfinite(row["log score, all"]) for row in rows)
