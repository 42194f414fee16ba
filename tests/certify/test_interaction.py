"""Certificates of the factor radius and of tau: valid, tight, and hard to fool."""

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.certify import Certificate, load
from attnlab.certify._interaction import radius_bounds

seeds = st.integers(0, 2**32 - 1)


def cross_certificate(lower=0.999999, upper=1.000001, **changes):
    """The cross-polytope: kappa = 1."""
    x = np.concatenate([np.eye(3), -np.eye(3)])
    weights = {"row_weights": np.full(6, 1 / 6), "column_weights": np.ones(6)}
    witness = {"left": x, "right": x} | weights | changes
    subject = {"left": 2 * x + 5, "right": x / 2}  # another gauge of the same interaction
    return Certificate("factor-radius", {"lower": lower, "upper": upper}, witness, subject)


@pytest.mark.parametrize("arb", [False, True])
def test_radius_holds_and_is_tight(arb):
    verdict = cross_certificate().verify(arb=arb)
    assert verdict.holds
    assert verdict.bound == pytest.approx(1, abs=1e-12)
    assert "kappa" in verdict.statement


@pytest.mark.parametrize(
    "claim",
    [{"lower": 1.01, "upper": 2.0}, {"lower": 0.5, "upper": 0.99}, {"lower": -1.0, "upper": 2.0}],
)
def test_radius_rejects_false_claims(claim):
    assert not cross_certificate(**claim).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"left": np.zeros((6, 3))},
        {"left": np.ones((6, 2))},
        {"left": np.ones((5, 3))},
        {"left": np.full((6, 3), np.nan)},
        {"row_weights": -np.ones(6)},
        {"row_weights": np.zeros(6)},
        {"column_weights": np.ones(5)},
        {"column_weights": np.array(["a"] * 6)},
    ],
)
def test_radius_rejects_bad_witnesses(changes):
    assert not cross_certificate(**changes).verify()


def test_affinely_dependent_factors_cannot_fake_a_small_radius():
    """A witness that forgets part of T pays for it in full."""
    x = np.random.default_rng(0).normal(size=(8, 2))
    forgot = {"left": x[:, :1], "right": x[:, :1]}
    weights = {"row_weights": np.full(8, 1 / 8), "column_weights": np.full(8, 1 / 8)}
    subject = {"left": x, "right": x}
    low, high = radius_bounds(forgot | weights, subject, False)
    true_low, true_high = radius_bounds(subject | weights, subject, False)
    assert low <= true_high
    assert true_low <= high


@settings(max_examples=30)
@given(st.integers(1, 4), seeds, st.floats(0, 1e-3))
def test_any_witness_gives_valid_bounds(r, seed, noise):
    """Whatever the weights and however perturbed the factors, the two ends stay in order."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(7, r)), rng.normal(size=(6, r))
    subject = {"left": x, "right": y}
    ends = [
        radius_bounds(
            {
                "left": x + noise * rng.normal(size=x.shape),
                "right": y + noise * rng.normal(size=y.shape),
                "row_weights": rng.uniform(size=7),
                "column_weights": rng.uniform(size=6),
            },
            subject,
            False,
        )
        for _ in range(3)
    ]
    assert max(low for low, _ in ends) <= min(high for _, high in ends)


def tau_certificate(tau, rank=2, kind="attention", drop=False, seed=0):
    rng = np.random.default_rng(seed)
    x, y, b = rng.normal(size=(6, 2)), rng.normal(size=(5, 2)), rng.normal(size=5)
    logits = x @ y.T + b + rng.normal(size=(6, 1)) + 0.1 * rng.uniform(-1, 1, size=(6, 5))
    attention = np.exp(logits)
    attention /= attention.sum(1, keepdims=True)
    if drop:
        attention[0, 0] = 0
        attention /= attention.sum(1, keepdims=True)
        logits[0, 0] = -np.inf
    retained = np.exp(x @ y.T + b)
    retained /= retained.sum(1, keepdims=True)
    truth = np.abs(attention - retained).sum(1).max()
    swing = np.ptp(np.log(np.where(attention > 0, attention, 1)) - x @ y.T - b, axis=1).max()
    subject = {kind: attention if kind == "attention" else logits}
    certificate = Certificate(
        "tau", {"rank": rank, "tau": tau}, {"left": x, "right": y, "column_gauge": b}, subject
    )
    return certificate, truth, 2 * np.tanh(swing / 4)


@pytest.mark.parametrize("kind", ["attention", "logits"])
@pytest.mark.parametrize("arb", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_tau_bounds_the_truth_and_is_tight(kind, arb, seed):
    certificate, truth, exact = tau_certificate(1.0, kind=kind, seed=seed)
    verdict = certificate.verify(arb=arb)
    assert verdict.holds
    assert truth <= verdict.bound
    assert exact <= verdict.bound <= exact * (1 + 1e-9)
    assert not tau_certificate(exact * 0.999, kind=kind, seed=seed)[0].verify(arb=arb)


def test_two_point_rows_are_sharp():
    half = 0.7
    attention = np.array([[1, np.exp(half)]]) / (1 + np.exp(half))
    empty = {"left": np.zeros((1, 0)), "right": np.zeros((2, 0))}
    witness = empty | {"column_gauge": np.array([half, 0.0])}  # the mirror image
    verdict = Certificate("tau", {"rank": 0, "tau": 1.0}, witness, {"attention": attention}).verify()
    assert verdict.bound == pytest.approx(np.abs(attention - attention[:, ::-1]).sum(), abs=1e-12)


def test_tau_rejects_what_proves_nothing():
    assert not tau_certificate(1.0, rank=1)[0].verify()
    masked, _, _ = tau_certificate(2.0, drop=True)
    assert not masked.verify()
    assert "full-support" in masked.verify().statement
    assert not tau_certificate(2.0, kind="logits", drop=True)[0].verify()
    assert not tau_certificate(float("nan"))[0].verify()


def test_files_survive_a_round_trip_and_tampering_is_seen(tmp_path):
    path = tmp_path / "kappa.npz"
    cross_certificate().save(path)
    assert load(path).verify()
    other = cross_certificate().subject | {"left": np.eye(6)[:, :3]}
    assert not load(path).detach().verify(other)
    tampered = Certificate(
        "factor-radius",
        {"lower": 0.9, "upper": 1.1},
        cross_certificate().witness,
        {"left": np.eye(6)[:, :3], "right": np.eye(6)[:, :3]},
    )
    assert not tampered.verify()  # the witness does not fit this subject


def test_float_tau_is_above_arb_tau():
    certificate, _, _ = tau_certificate(1.0)
    with flint.ctx.workprec(200):
        exact = certificate.verify(arb=True).bound
    assert exact <= certificate.verify().bound
