"""Error profiles and brackets: known answers, invariances, and the certificates behind each end."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.rank import Logits, attention, bracket, brackets, error_profile, focused_profile
from attnlab.rank._bracket import _crossing, _locate
from attnlab.rank._effort import EFFORTS
from attnlab.rank._explorer import Explorer
from attnlab.rank._target import target

HEADS = Path(__file__).parents[1] / "data" / "minilm_heads.npz"


def small(seed, m=8, n=9):
    rng = np.random.default_rng(seed)
    return np.asarray(attention(rng.normal(size=(m, 3)), rng.normal(size=(n, 3)), 2.0))


def ends(result):
    return result.lower, result.upper


def holds(result):
    for certificate in (result.lower_certificate, result.upper_certificate):
        assert certificate is None or certificate.verify()


def test_identity_needs_full_rank():
    result = bracket(np.eye(64), 0.99, effort="fast")
    assert ends(result) == (64, 64)
    holds(result)


@pytest.mark.parametrize(
    ("matrix", "eps", "rank"),
    [
        (np.full((5, 7), 1 / 7), 0.5, 1),
        (np.ones((1, 1)), 0.5, 1),
        (np.ones((4, 1)), 0.5, 1),
        (np.array([[0.2, 0.3, 0.5]]), 0.1, 1),
        (np.eye(3), 1.0, 0),
        (np.eye(3), 1.7, 0),
    ],
)
def test_known_ranks(matrix, eps, rank):
    result = bracket(matrix, eps, effort="fast")
    assert ends(result) == (rank, rank)
    assert result.closed
    holds(result)


def test_profile_is_monotone_certified_and_serves_any_eps():
    profile = error_profile(small(0), effort="fast")
    assert (np.diff(profile.lower) <= 0).all()
    assert (np.diff(profile.upper) <= 0).all()
    assert (profile.lower <= profile.upper).all()
    assert (profile.lower[0], profile.upper[0]) == (1, 1)
    for k, low, high, c, d in zip(
        profile.ranks,
        profile.lower,
        profile.upper,
        profile.lower_certificates,
        profile.upper_certificates,
        strict=True,
    ):
        assert d.verify()
        assert d.claim["rank"] <= k
        assert d.claim["error"] == high
        if c is not None:
            assert c.verify()
            assert c.claim["rank"] >= k
            assert c.claim["error"] == low
    for eps in (0.01, 0.1, 0.4, 0.9, 1.0):
        result = profile.bracket(eps)
        assert result.lower <= result.upper
        holds(result)


def test_focused_profile_gives_the_same_brackets_and_reports_progress():
    lines = []
    a = small(1)
    profile = focused_profile(a, [0.1, 0.4], effort="fast", report=lines.append)
    assert [ends(profile.bracket(e)) for e in (0.1, 0.4)] == [
        ends(b) for b in brackets(a, [0.1, 0.4], effort="fast")
    ]
    assert any("upper search" in line for line in lines)


@settings(max_examples=3)
@given(st.integers(0, 10**6))
def test_permutations_and_the_form_of_the_input_do_not_matter(seed):
    """Brackets of equal matrices overlap, and a profile of fewer rows lies below."""
    rng = np.random.default_rng(seed)
    a = small(seed)
    permuted = a[rng.permutation(8)][:, rng.permutation(9)]
    first = error_profile(a, [2, 4], effort="fast")
    for other in (permuted, Logits(np.log(a))):
        second = error_profile(other, [2, 4], effort="fast")
        assert (first.lower <= second.upper * (1 + 1e-9)).all()
        assert (second.lower <= first.upper * (1 + 1e-9)).all()
    fewer = error_profile(a[:6], [2, 4], effort="fast")
    assert (fewer.lower[:3] <= first.upper[:3] * (1 + 1e-9)).all()


def test_causal_attention_with_exact_zeros(rng):
    q = rng.normal(size=(10, 2))
    a = np.asarray(attention(q, q, 1.0, mask=np.tril(np.ones((10, 10), bool))))
    for result in brackets(a, [0.1, 0.5], effort="fast"):
        assert 1 <= result.lower <= result.upper <= 10
        holds(result)


def test_keys_and_seeds_are_deterministic():
    a = small(2)
    for key in (3, jax.random.key(3), jax.random.PRNGKey(3)):
        first, second = (error_profile(a, [3], key=key, effort="fast") for _ in range(2))
        np.testing.assert_array_equal(first.upper, second.upper)
        np.testing.assert_array_equal(first.lower, second.lower)


def test_a_learned_head_reaches_the_published_quality():
    """MiniLM layer 3 head 5, k = 1 .. 8: near the first prototype's bracket already at fast effort."""
    with np.load(HEADS) as data:
        index = data["heads"].tolist().index([3, 5])
        logits = data["logits"][index].astype(np.float64)
    profile = error_profile(Logits(logits), [1, 2, 4, 8], effort="fast")
    for k, low, high in ((1, 0.645, 0.646), (2, 0.489, 0.511), (4, 0.287, 0.322), (8, 0.174, 0.189)):
        i = int(np.flatnonzero(profile.ranks == k)[0])
        assert profile.lower[i] >= 0.9 * low
        assert profile.upper[i] <= 1.05 * high
    assert {"seconds", "lane_steps", "peak_memory_mb", "lanes_improved"} <= profile.cost.keys()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda a: error_profile(a, []), "ranks must be a list"),
        (lambda a: error_profile(a, [1.5]), "ranks must be a list"),
        (lambda a: error_profile(a, [-1]), "ranks must lie"),
        (lambda a: error_profile(a, [99]), "ranks must lie"),
        (lambda a: error_profile(a, effort="lots"), "effort must be one of"),
        (lambda a: brackets(a, []), "eps is empty"),
        (lambda a: bracket(a, 0.5, precision="half"), "precision must be"),
    ],
)
def test_bad_arguments(call, reason):
    with pytest.raises(ValueError, match=reason):
        call(np.eye(3))


def test_a_rank_with_only_a_construction_is_still_searched():
    """The SVD certificate one tolerance needs must not keep another from searching that rank."""
    plain, prepared = (Explorer(target(small(3, 16, 16)), EFFORTS["fast"], 0) for _ in range(2))
    prepared.construct(range(1, 16))
    _locate(plain, [0.1])
    _locate(prepared, [0.1])
    assert min(k for k in range(17) if prepared.upper_bound(k) <= 0.1) <= min(
        k for k in range(17) if plain.upper_bound(k) <= 0.1
    )
    assert prepared.steps >= 0.5 * plain.steps


def test_lower_ends_are_sought_where_the_values_cross_eps():
    def explorer(values):
        lower = {k: SimpleNamespace(claim={"error": v}) for k, v in values.items()}
        return cast(Explorer, SimpleNamespace(lower=lower))

    falling = {k: 2.0**-k for k in (0, 2, 10)}
    assert _crossing(explorer(falling), 2.0**-6, 3, 11) == 6
    assert _crossing(explorer(falling), 2.0**-9.9, 3, 11) == 10
    assert _crossing(explorer(falling), 2.0**-2.1, 3, 11) == 3
    assert _crossing(explorer({0: 1.0}), 0.1, 1, 7) == 6


def test_printed_forms():
    result = bracket(np.eye(3), 0.5, effort="fast")
    assert repr(result) == "RankBracket(r_0.5 = 3, certified)"
    assert "a_2" in repr(error_profile(np.eye(3), effort="fast"))


def test_float32_search_loses_nothing_and_needs_no_float64(tmp_path):
    """JAX as it comes (float64 off), in a fresh process, against a float64 search."""
    np.save(tmp_path / "a.npy", small(3))
    code = (
        "import sys, numpy as np, attnlab as al\n"
        f"a = np.load({str(tmp_path / 'a.npy')!r})\n"
        "p = al.rank.error_profile(a, [2, 4], effort='fast')\n"
        "assert all(c.verify() for c in p.upper_certificates)\n"
        "assert all(c is None or c.verify() for c in p.lower_certificates)\n"
        "np.save(sys.argv[1], np.stack([p.lower, p.upper]))\n"
        "try:\n"
        "    al.rank.bracket(a, 0.1, precision='float64')\n"
        "except ValueError as error:\n"
        "    assert 'jax_enable_x64' in str(error)\n"
        "else:\n"
        "    raise AssertionError('float64 was accepted')\n"
    )
    out = tmp_path / "ends.npy"
    run = subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True, timeout=150)
    assert run.returncode == 0, run.stderr
    double = error_profile(small(3), [2, 4], effort="fast", precision="float64")
    lower, upper = np.load(out)
    assert (lower >= double.lower * 0.98).all()
    assert (upper <= double.upper * 1.02 + 1e-12).all()
