"""Brackets of finite point sets: against dense linear algebra and independent certificates."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.certify import Certificate
from attnlab.laws import (
    PointAttention,
    _finite,
    ball_bracket,
    ball_points,
    fit_slope,
    point_bracket,
    sphere_bracket,
    sphere_points,
)
from attnlab.laws._flatten import flattened


def dense(attention):
    return attention.rows(slice(None))


def svd_upper(a, eps):
    u, s, vt = np.linalg.svd(a)
    errors = [np.abs(a - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max() for k in range(1, len(s) + 1)]
    return int(np.argmax(np.array(errors) <= eps)) + 1


def test_ball_points_are_the_row_normalised_gaussian():
    attention = ball_points(2, 20.0)
    x = attention.q
    gauss = np.exp(-10.0 * ((x[:, None] - x[None]) ** 2).sum(-1))
    assert np.allclose(dense(attention), gauss / gauss.sum(1, keepdims=True), atol=1e-14)
    assert (np.linalg.norm(x, axis=1) <= 0.5 + 1e-9).all()


@pytest.mark.parametrize(("d", "beta"), [(1, 16.0), (1, 300.0), (2, 64.0), (3, 20.0)])
@pytest.mark.parametrize("eps", [0.2, 0.5])
def test_ball_bracket_is_consistent_with_dense_bounds(d, beta, eps):
    bracket = ball_bracket(d, beta, eps)
    a = dense(ball_points(d, beta))
    assert 1 <= bracket.lower <= bracket.upper <= 1.1 * svd_upper(a, eps) + 1
    assert bracket.upper_error <= eps
    verdict = bracket.lower_certificate.verify()
    assert verdict.holds
    if bracket.lower > 1:
        assert verdict.bound > eps
        assert bracket.lower_certificate.claim["rank"] == bracket.lower - 1
        assert bracket.lower_certificate.kind in ("rank-lower", "rank-lower-psd")
    tail = np.sqrt(np.cumsum(np.linalg.svd(a)[1][::-1] ** 2)[::-1] / len(a))  # plain l2 lower bound
    assert bracket.upper >= np.sum(tail > eps)


def test_ball_slopes_reach_theory_on_a_line():
    betas = 2.0 ** np.arange(4, 13)
    brackets = [ball_bracket(1, beta, 0.2) for beta in betas]
    assert abs(fit_slope(betas, [b.lower for b in brackets]).slope - 0.5) < 0.05
    assert abs(fit_slope(betas, [b.upper for b in brackets]).slope - 0.5) < 0.05
    assert brackets[-1].log10_size > 200  # e^(beta/8) points, few of them distinct


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.floats(1.0, 30.0), st.sampled_from([0.1, 0.3, 0.6]))
def test_point_bracket_brackets(seed, beta, eps):
    attention = sphere_points(3, 60, beta, np.random.default_rng(seed))
    bracket = point_bracket(attention, eps)
    # The error of truncation is not monotone in the rank, so bisection may stop a little later.
    assert 1 <= bracket.lower <= bracket.upper <= 1.1 * svd_upper(dense(attention), eps) + 1
    assert bracket.upper_error <= eps
    assert bracket.lower_certificate.verify()


def test_many_sphere_points_approach_the_continuum():
    closed = sphere_bracket(2, 64.0, 0.1)
    finite = point_bracket(sphere_points(2, 400, 64.0, np.random.default_rng(0)), 0.1)
    assert finite.lower <= closed.upper
    assert closed.lower <= finite.upper
    assert finite.upper <= 1.2 * closed.upper
    assert finite.lower >= 0.8 * closed.lower


def test_thousands_of_points_take_less_memory_than_their_matrix():
    points = sphere_points(2, 2304, 64.0, np.random.default_rng(0))
    tracemalloc.start()
    try:
        bracket = point_bracket(points, 0.5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2304**2 * 8
    assert 15 <= bracket.lower <= bracket.upper <= 27


def test_ends_include_the_rounding_of_the_matrices():
    for bracket, eps in (
        (ball_bracket(1, 100.0, 0.3), 0.3),
        (point_bracket(sphere_points(2, 40, 9.0, np.random.default_rng(0)), 0.2), 0.2),
    ):
        assert 0 < bracket.rounding < 1e-11
        assert bracket.lower_certificate.verify().bound - bracket.rounding > eps
        assert bracket.upper_error <= eps


def test_extreme_temperatures():
    cold = point_bracket(PointAttention(np.eye(6), np.eye(6), 1e9, np.zeros(6)), 0.5)
    assert (cold.lower, cold.upper) == (6, 6)
    scattered = np.random.default_rng(0).normal(size=(6, 2))
    assert point_bracket(PointAttention(scattered, scattered, 1e9, np.zeros(6)), 0.1).lower >= 1
    hot = ball_bracket(1, 1e-3, 0.1)
    assert (hot.lower, hot.upper) == (1, 1)


def test_coincident_points_have_rank_one():
    attention = PointAttention(np.ones((30, 2)), np.ones((30, 2)), 5.0, np.zeros(30))
    bracket = point_bracket(attention, 0.1)
    assert (bracket.lower, bracket.upper) == (1, 1)


def test_duplicates_are_column_weights():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    counts = rng.integers(1, 5, 20)
    merged = PointAttention(x, x, 2.0, np.log(counts))
    repeated = np.repeat(x, counts, axis=0)
    full = dense(PointAttention(repeated, repeated, 2.0, np.zeros(len(repeated))))
    labels = np.repeat(np.arange(20), counts)
    rows = np.unique(labels, return_index=True)[1]
    clusters = np.eye(20)[labels]
    assert np.allclose(dense(merged), full[rows] @ clusters, atol=1e-14)


def test_aggregation_bound_holds_for_the_full_matrix():
    """The certificate of the aggregated matrix is a valid bound on every low-rank B of the full one."""
    attention = sphere_points(3, 80, 8.0, np.random.default_rng(1))
    a = dense(attention)
    labels = np.random.default_rng(2).integers(0, 9, 80)
    square = _finite.aggregate(attention, np.arange(9), labels)
    bound = _finite.lower_certificate(square).verify().bound
    u, s, vt = np.linalg.svd(a)
    truncated = np.abs(a - (u[:, :8] * s[:8]) @ vt[:8]).sum(1).max()
    assert bound <= truncated


def test_streamed_error_is_the_dense_error_and_certified():
    attention = sphere_points(2, 700, 9.0, np.random.default_rng(3))  # more than one block
    right, left = _finite.row_space(attention, np.arange(60))
    a, k = dense(attention), 7
    exact = np.abs(a - left[:, :k] @ right[:, :k].T).sum(1).max()
    assert _finite.streamed_error(attention, left[:, :k], right[:, :k]) == pytest.approx(exact)
    certified = _finite.certified_error(attention, left[:, :k], right[:, :k])
    assert exact <= certified <= exact * (1 + 1e-9)
    claim = {"rank": k, "error": certified * (1 + 1e-9)}
    witness = {"U": left[:, :k], "W": right[:, :k].T}
    assert Certificate("rank-upper", claim, witness, {"attention": a}).verify()


def test_reweighting_beats_truncation_and_is_certified():
    attention = sphere_points(3, 200, 6.0, np.random.default_rng(0))
    right, left = _finite.row_space(attention, np.arange(200))
    plain, _ = _finite.least_rank(attention, left, right, 0.1)
    sharper = _finite.sharpen(attention, right, left, 0.1, plain)
    assert sharper is not None
    assert sharper[0].shape[1] < plain
    assert _finite.certified_error(attention, *sharper) <= 0.1 * (1 + 1e-9)
    assert _finite.sharpen(attention, right, left, 1e-9, 8) is None


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 12.0), st.sampled_from([0.1, 0.3]))
def test_flattened_spectrum_is_verified_and_below_every_upper_end(seed, beta, eps):
    a = dense(sphere_points(3, 40, beta, np.random.default_rng(seed)))
    certificate = flattened(a, eps)
    if certificate is None:  # nothing above the trivial rank 1
        assert svd_upper(a, eps) <= 8
        return
    verdict = certificate.verify()
    assert verdict.holds
    assert verdict.bound > eps
    assert certificate.claim["rank"] + 1 <= svd_upper(a, eps)
    uniform = np.linalg.svd(a)[1] / np.sqrt(len(a))
    plain = np.sqrt(np.cumsum(uniform[::-1] ** 2)[::-1])  # the l2 tail, H = I
    assert certificate.claim["rank"] + 1 >= 0.7 * np.sum(plain > eps)


def test_flattened_spectrum_approaches_the_continuum():
    closed = sphere_bracket(3, 8.0, 0.1)
    points = sphere_points(3, 400, 8.0, np.random.default_rng(0))
    assert flattened(dense(points), 0.1).claim["rank"] + 1 >= 0.85 * closed.lower


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0, 4.0, 0.1), "d must"),
        ((1, -4.0, 0.1), "beta"),
        ((1, np.inf, 0.1), "beta"),
        ((1, 4.0, 1.0), "eps"),
        ((2, 1e6, 0.1), "smaller beta"),
        ((3, 1e4, 0.1), "smaller beta"),
        ((2.5, 4.0, 0.1), "d must"),
        ((1, np.nan, 0.1), "beta"),
        ((1, 4.0, np.nan), "eps"),
    ],
)
def test_bad_input(arguments, word):
    with pytest.raises(ValueError, match=word):
        ball_bracket(*arguments)


def test_bad_eps():
    with pytest.raises(ValueError, match="eps"):
        point_bracket(sphere_points(2, 5, 1.0, np.random.default_rng(0)), 0.0)
    with pytest.raises(ValueError, match="PointAttention"):
        point_bracket(np.eye(3), 0.1)
    with pytest.raises(ValueError, match="d and n"):
        sphere_points(0, 5, 1.0, np.random.default_rng(0))
