"""The floor under tau: below every interaction there is, and close to the best one known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.interaction import intrinsic, profile, residual, tau, tau_floor
from attnlab.interaction._residual import exact_tau


def softmax(logits):
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.floats(0.05, 3.0))
def test_below_the_tau_of_any_interaction(seed, rank, scale):
    rng = np.random.default_rng(seed)
    a = softmax(scale * rng.normal(size=(9, 7)))
    c = intrinsic(a)
    floor = tau_floor(a, rank)
    u, s, vt = np.linalg.svd(c)
    for noise in (0.0, 0.1, 1.0):
        t = (u[:, :rank] * s[:rank]) @ vt[:rank]
        t = t + noise * rng.normal(size=(9, rank)) @ rng.normal(size=(rank, 7))
        low = np.linalg.svd(t)
        t = (low[0][:, :rank] * low[1][:rank]) @ low[2][:rank]
        assert floor <= exact_tau(residual(c - t)) + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_rank_zero_against_the_exact_residual(seed):
    a = softmax(np.random.default_rng(seed).normal(size=(8, 8)))
    exact = float(tau(residual(intrinsic(a))))
    assert 0.5 * exact <= tau_floor(a, 0) <= exact


def test_two_point_rows_are_sharp():
    a = softmax(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert tau_floor(a, 0) == pytest.approx(float(tau(residual(intrinsic(a)))), rel=1e-9)
    assert tau_floor(a, 1) == 0


def test_gauges_and_the_search(rng):
    q, k = rng.normal(size=(12, 6)), rng.normal(size=(11, 6))
    a = softmax(q @ k.T)
    b = softmax(q @ k.T + rng.normal(size=11))
    assert tau_floor(a, 3) == pytest.approx(tau_floor(b, 3), rel=1e-9)
    found = profile(a, 0.5, (1, 3), steps=200)
    for rank, cost in zip((1, 3), found.tau, strict=True):
        assert 0.4 * cost <= tau_floor(a, rank) <= cost
    assert tau_floor(a, 6) < 1e-9


def test_bad_input():
    with pytest.raises(ValueError, match="rank"):
        tau_floor(np.full((2, 2), 0.5), -1)
    with pytest.raises(ValueError, match="rank"):
        tau_floor(np.full((2, 2), 0.5), 1.5)
    with pytest.raises(ValueError, match="full support"):
        tau_floor(np.eye(2), 1)
