"""Factored attention: the formed path bit for bit, the streamed path against exact matrices, bad input."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from attnlab.certify import Certificate
from attnlab.rank import FactoredAttention, attention, bracket, error_profile, focused_profile
from attnlab.rank._factored import centred, logit_size
from attnlab.rank._stream import image, row_errors, some_rows, stream, times
from attnlab.rank._stream_basis import find_basis
from attnlab.rank._stream_bernstein import aggregate
from attnlab.rank._stream_lower import Spectrum, exact
from attnlab.rank._streamed import BUDGETS, Budget, plan

M, N, D = 40, 50, 3
TOLERANCES = {"plain": (0.1, 0.4), "causal": (0.3,), "masked": (0.3,)}


def head(seed=0, mask=None, m=M, n=N, beta=2.0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=n)
    weights[3] = -np.inf
    q, k = rng.normal(size=(m, D)).astype(dtype), rng.normal(size=(n, D)).astype(dtype)
    return FactoredAttention(q, k, beta, weights, mask)


def mask():
    bits = np.random.default_rng(5).random((M, N)) < 0.7
    bits[:, 0] = True
    return bits


@pytest.fixture(scope="module")
def small_plan():
    """The streamed path for matrices of any size, with a small budget."""
    patch = pytest.MonkeyPatch()
    patch.setattr("attnlab.rank._streamed.DENSE", 0)
    patch.setitem(BUDGETS, "fast", Budget(3, 2, 24, 100, 1))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def streamed(small_plan):
    """Streamed profiles of three subjects, for several tests."""
    cases = {"plain": head(), "causal": head(1, "causal"), "masked": head(2, mask())}
    return {name: (f, focused_profile(f, TOLERANCES[name], effort="fast")) for name, f in cases.items()}


def test_the_matrix_is_that_of_attention():
    for f, seen in ((head(), None), (head(2, mask()), mask())):
        expected = attention(f.q, f.k, f.beta, f.log_weights, seen)
        np.testing.assert_array_equal(np.asarray(f), np.asarray(expected))
    causal = np.asarray(head(1, "causal"))
    assert (causal[0, N - M + 1 :] == 0).all()
    assert causal[0, N - M] > 0


def test_centring_keeps_the_softmax():
    f = head(4)
    q, k, b = centred(f)
    expected = np.asarray(f)
    z = f.beta * q @ k.T + b
    np.testing.assert_allclose(np.exp(z) / np.exp(z).sum(1, keepdims=True), expected, atol=1e-14)
    far = FactoredAttention(f.q, f.k - 50.0, f.beta, f.log_weights)
    assert logit_size(far) == pytest.approx(logit_size(f))


def test_small_ones_take_the_formed_path_bit_for_bit():
    f = head(0, m=9, n=10)
    ours, formed = bracket(f, 0.2, effort="fast", key=3), bracket(f.dense(), 0.2, effort="fast", key=3)
    assert (ours.lower, ours.upper) == (formed.lower, formed.upper)
    for a, b in (
        (ours.lower_certificate, formed.lower_certificate),
        (ours.upper_certificate, formed.upper_certificate),
    ):
        assert a.claim == b.claim
        for name in a.witness:
            np.testing.assert_array_equal(a.witness[name], b.witness[name])


@pytest.mark.parametrize("case", ["plain", "causal", "masked"])
def test_streamed_ends_are_valid_for_the_exact_matrix(streamed, case):
    f, profile = streamed[case]
    a = np.asarray(f)
    u, s, vt = np.linalg.svd(a)
    svd_error = [np.abs(a - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max() for k in range(len(s))] + [0.0]
    for eps in TOLERANCES[case]:
        result = profile.bracket(eps)
        assert 1 <= result.lower <= result.upper
        assert result.upper <= 1.1 * int(np.argmax(np.array(svd_error) <= eps)) + 1
        for certificate in (result.lower_certificate, result.upper_certificate):
            assert set(certificate.subject) >= {"q", "k", "beta", "log_weights"}
            assert certificate.verify()
            assert certificate.verify(arb=True)
        if result.upper < M:
            witness = result.upper_certificate.witness
            error = np.abs(a - witness["U"].astype(float) @ witness["W"].astype(float)).sum(1).max()
            assert error <= result.upper_certificate.claim["error"] <= eps
    for k, low in zip(profile.ranks, profile.lower, strict=True):
        assert low <= svd_error[k] + 1e-9 or k == len(s)


def test_profiles_at_given_ranks(small_plan):
    f = head()
    profile = error_profile(f, [6, 12], effort="fast")
    assert list(profile.ranks) == [0, 6, 12, M]
    assert (profile.lower <= profile.upper).all()
    assert (profile.lower[1:3] > 0.02).all()
    assert (np.diff(profile.upper) < 0).all()
    for certificate in (*profile.lower_certificates[1:3], *profile.upper_certificates):
        assert certificate.verify()


def test_known_ranks(small_plan):
    flat = FactoredAttention(np.zeros((30, 2)), np.ones((20, 2)))
    assert (bracket(flat, 0.1, effort="fast").lower, bracket(flat, 0.1, effort="fast").upper) == (1, 1)
    assert bracket(flat, 1.5, effort="fast").upper == 0
    identity = FactoredAttention(np.eye(12), np.eye(12), beta=60.0)
    result = bracket(identity, 0.5, effort="fast")
    assert result.upper == 12
    assert result.lower >= 6


def test_precision_is_that_of_the_search_not_of_the_input():
    for dtype in (np.float32, np.float64):
        assert stream(head(dtype=np.float32), dtype).dtype == dtype
        assert stream(head(), dtype).dtype == dtype


def test_nothing_compiles_twice_and_seeds_decide(small_plan, streamed):
    f, first = streamed["plain"]
    again = focused_profile(f, TOLERANCES["plain"], effort="fast")
    assert again.cost["compilations"] == 0
    assert again.bracket(0.1).upper == first.bracket(0.1).upper
    np.testing.assert_array_equal(again.lower, first.lower)


@pytest.mark.parametrize(("case", "block"), [("plain", 7 * N), ("causal", N), ("masked", 10**6)])
def test_passes_agree_with_the_matrix(streamed, case, block):
    f = streamed[case][0]
    a, rng = np.asarray(f), np.random.default_rng(0)
    data = stream(f, np.float64, block)
    left, right = rng.normal(size=(M, 4)), rng.normal(size=(4, N))
    np.testing.assert_allclose(some_rows(data, np.array([3, M - 1])), a[[3, M - 1]], atol=1e-12)
    np.testing.assert_allclose(data.flat(times(data, right.T)), a @ right.T, atol=1e-12)
    errors = data.flat(row_errors(data, data.blocks(left), right))
    np.testing.assert_allclose(errors, np.abs(a - left @ right).sum(1), rtol=1e-12)
    basis = np.linalg.qr(right.T)[0]
    inside, off = image(data, basis)
    np.testing.assert_allclose(data.flat(inside), a @ basis, atol=1e-12)
    np.testing.assert_allclose(data.flat(off), np.abs(a - a @ basis @ basis.T).sum(1), rtol=1e-10)


def test_landmarks_are_added_until_every_row_is_near(rng):
    """One far query among a thousand equal ones is found, although few rows are drawn."""
    q = np.concatenate([np.zeros((400, 2)), [[4.0, -4.0]]])
    f = FactoredAttention(q, rng.normal(size=(30, 2)), 1.0)
    basis = find_basis(stream(f, np.float64), f, 1e-6, 64, rng)
    assert basis.left_over < 1e-6
    assert basis.size == 2


def test_flattened_spectra_are_exact_after_the_last_pass(rng):
    f = head(7, m=60, n=60)
    data = stream(f)
    basis = find_basis(data, f, 0.01, 64, rng)
    flat = exact(data, Spectrum(basis).for_eps(0.2))
    image_of = np.asarray(f) @ flat.right
    gram = (image_of * flat.weights[:, None]).T @ image_of
    assert np.abs(gram - np.eye(flat.size)).max() < 1e-4
    rank = flat.rank(0.2)
    claim, witness = {"rank": rank, "error": 0.2}, {"R": flat.right, "P": flat.weights[None]}
    assert Certificate("rank-lower-psd", claim, witness, f.subject).verify().bound > 0.2


def test_aggregates_are_sums_of_columns(rng):
    f = head(8, m=50, n=70)
    basis = find_basis(stream(f, np.float64), f, 1e-3, 64, rng)
    small = aggregate(f.exact, basis, 16)
    clusters = np.eye(small.labels.max() + 1)[small.labels]
    np.testing.assert_allclose(small.matrix, np.asarray(f)[small.rows] @ clusters, atol=1e-12)
    assert max(small.matrix.shape) <= 16


def test_verification_of_large_factors_holds_no_matrix():
    n = 3000
    f = FactoredAttention(np.zeros((n, 2)), np.zeros((n, 2)))
    witness = {"U": np.ones((n, 3)), "W": np.full((3, n), 1 / 3 / n)}
    certificate = Certificate("rank-upper", {"rank": 3, "error": 1e-9}, witness, f.subject)
    tracemalloc.start()
    try:
        assert certificate.verify()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * n * n * 1.5  # two workers hold up to 2^22 entries each whatever n is


def test_rows_are_spread_over_devices():
    """Two host devices give what one gives, in a process of its own."""
    code = """
import jax, numpy as np
from attnlab.rank import FactoredAttention
from attnlab.rank._stream import row_errors, stream
assert jax.device_count() == 2
q = np.random.default_rng(0).normal(size=(33, 3)).astype(np.float32)
f = FactoredAttention(q, q, 2.0)
data = stream(f, np.float32, 33 * 8)
assert len(data.q.sharding.device_set) == 2
u, w = np.ones((33, 2), np.float32), np.ones((2, 33), np.float32)
found = data.flat(row_errors(data, data.blocks(u), w))
assert np.allclose(found, np.abs(f.exact.rows(slice(None)).mid - u @ w).sum(1), rtol=1e-5)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **flags}, timeout=120)


def test_the_path_follows_size_and_memory(monkeypatch):
    monkeypatch.setattr("attnlab.rank._streamed.DENSE", 2**16)
    assert plan((200, 200), None).dense
    assert not plan((2000, 2000), None).dense
    assert plan((200, 200), 1e8).dense
    assert not plan((250, 250), 1.5e7).dense
    generous, tight = plan((16384, 16384), 8e9), plan((16384, 16384), 5e8)
    assert tight.landmarks < generous.landmarks
    with pytest.raises(ValueError, match=r"the least is [0-9]+ MB"):
        plan((16384, 16384), 1e6)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((np.zeros((2, 3)), np.zeros((2, 4))), "same d"),
        ((np.zeros((0, 3)), np.zeros((2, 3))), "non-empty"),
        ((np.full((2, 3), np.nan), np.zeros((2, 3))), "q has NaN"),
        ((np.zeros((2, 3)), np.full((2, 3), np.inf)), "k has NaN"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), np.nan), "beta has NaN"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), [1.0, 2.0]), "one number"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), 1.0, np.zeros(3)), "log_weights must"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), 1.0, [0.0, np.inf]), "log_weights have"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), 1.0, [-np.inf, -np.inf]), "row 0 has no key"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), 1.0, None, np.array([[True, True], [False, False]])), "row 1"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), 1.0, None, np.ones((2, 3), bool)), "mask must"),
        ((np.zeros((3, 3)), np.zeros((2, 3)), 1.0, None, "causal"), "row 0 has no key"),
        ((np.zeros((2, 3)), np.zeros((2, 3)), 1.0, None, "future"), "mask must"),
        ((np.full((2, 3), 1e200), np.full((2, 3), 1e200)), "too large for float64 logits"),
        ((np.array([["a"]]), np.zeros((2, 3))), "real numbers"),
    ],
)
def test_bad_input(arguments, word):
    with pytest.raises(ValueError, match=word):
        FactoredAttention(*arguments)


def test_bad_searches(small_plan):
    loud = FactoredAttention(1e3 * np.eye(20), 1e3 * np.eye(20))
    with pytest.raises(ValueError, match="too large for float32 logits"):
        bracket(loud, 0.1)
    with pytest.raises(ValueError, match="memory_limit of 0 MB is too small"):
        bracket(head(), 0.1, memory_limit=1000)
    with pytest.raises(ValueError, match="positive"):
        bracket(head(), 0.1, memory_limit=-1)
    with pytest.raises(ValueError, match="pass a FactoredAttention"):
        bracket(np.eye(50), 0.1, memory_limit=1000)
    with pytest.raises(ValueError, match="effort"):
        bracket(head(), 0.1, effort="heroic")
