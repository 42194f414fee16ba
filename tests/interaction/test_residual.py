"""Residuals against an LP oracle; tau and its sharp example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from attnlab.interaction import column_gauge, residual, smooth_residual, tau

seeds = st.integers(0, 2**32 - 1)


def lp_residual(e):
    """min w with e_ij - b_j in [lo_i, lo_i + 2 w] for all i, j."""
    m, n = e.shape
    rows, rhs = [], []
    for i in range(m):
        for j in range(n):
            upper, lower = np.zeros(n + m + 1), np.zeros(n + m + 1)
            upper[[j, n + i, -1]] = -1, -1, -2
            lower[[j, n + i]] = 1, 1
            rows += [upper, lower]
            rhs += [-e[i, j], e[i, j]]
    cost = np.zeros(n + m + 1)
    cost[-1] = 1
    return linprog(cost, np.array(rows), np.array(rhs), bounds=(None, None)).fun


@given(st.integers(1, 7), st.integers(1, 7), seeds)
def test_optimal_gauge_agrees_with_linear_programming(m, n, seed):
    e = np.random.default_rng(seed).normal(size=(m, n))
    assert residual(e) == pytest.approx(lp_residual(e), abs=1e-8)


@given(st.integers(1, 12), st.integers(1, 12), seeds)
def test_invariances(m, n, seed):
    rng = np.random.default_rng(seed)
    e = np.round(rng.normal(size=(m, n)), 1)  # ties are common
    shifted = e + rng.normal(size=(m, 1)) + rng.normal(size=(1, n))
    value = residual(e)
    assert residual(shifted) == pytest.approx(value, abs=1e-10)
    assert residual(-e) == pytest.approx(value, abs=1e-10)
    assert residual(e[rng.permutation(m)][:, rng.permutation(n)]) == pytest.approx(value, abs=1e-10)
    assert residual(2 * e) == pytest.approx(2 * value, abs=1e-10)
    assert value <= residual(e, gauge="none") + 1e-12
    gauged = e - column_gauge(e)
    assert np.ptp(gauged, axis=1).max() / 2 == pytest.approx(value, abs=1e-12)


def test_rank_one_constants_leave_nothing():
    assert residual(np.add.outer(np.arange(4.0), np.arange(5.0) ** 2)) < 1e-12


@given(st.floats(0.0, 20.0))
def test_two_point_rows_are_exactly_tau_apart(q):
    p = np.array([1, np.exp(q)]) / (1 + np.exp(q))
    assert float(tau(q)) == pytest.approx(np.abs(p - p[::-1]).sum(), abs=1e-12)


@given(st.integers(2, 9), seeds)
def test_tau_bounds_the_l1_distance(n, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n))
    ratio = rng.normal(size=n) * rng.uniform(0, 3)
    r = p * np.exp(ratio)
    r /= r.sum()
    assert np.abs(p - r).sum() <= float(tau(np.ptp(ratio) / 2)) + 1e-12


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.001])
def test_smooth_residual_is_an_upper_bound_and_converges(temperature, rng):
    e, b = rng.normal(size=(6, 5)), rng.normal(size=5)
    exact = np.ptp(e - b, axis=1).max() / 2
    smooth = float(smooth_residual(jnp.asarray(e), jnp.asarray(b), temperature))
    assert exact <= smooth <= exact + temperature * np.log(6 * 25) / 2 + 1e-12


def test_smooth_residual_is_differentiable_in_float32():
    with jax.enable_x64(False):
        e, b = jnp.ones((4, 3)), jnp.zeros(3)
        value, grad = jax.jit(jax.value_and_grad(smooth_residual, argnums=1))(e, b, 0.1)
        assert value.dtype == jnp.float32
        assert bool(jnp.isfinite(grad).all())


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_batches_equal_loops_and_jit_equals_eager(dtype, rng):
    e, b = jnp.asarray(rng.normal(size=(3, 5, 4)), dtype), jnp.asarray(rng.normal(size=(3, 4)), dtype)
    traces = []

    def cost(error, gauge, temperature):
        traces.append(1)
        return tau(smooth_residual(error, gauge, temperature))

    tolerance = 1e-5 if dtype == jnp.float32 else 1e-12
    together = jax.jit(jax.vmap(cost, (0, 0, None)))
    values = together(e, b, jnp.asarray(0.1, dtype))
    together(e + 1, b, jnp.asarray(0.2, dtype))
    assert len(traces) == 1  # the temperature is data
    assert values.dtype == dtype
    for value, error, gauge in zip(values, e, b, strict=True):
        assert float(cost(error, gauge, jnp.asarray(0.1, dtype))) == pytest.approx(
            float(value), rel=tolerance
        )


@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_gradient_agrees_with_finite_differences(temperature, rng):
    e, b = jnp.asarray(rng.normal(size=(4, 3))), jnp.asarray(rng.normal(size=3))
    direction = jnp.asarray(rng.normal(size=3))
    slope = jax.grad(smooth_residual, argnums=1)(e, b, temperature) @ direction
    step = 1e-6
    ends = [smooth_residual(e, b + s * step * direction, temperature) for s in (1, -1)]
    assert float(slope) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-5)


def test_bad_input():
    with pytest.raises(ValueError, match="gauge"):
        residual(np.ones((2, 2)), gauge="best")
    with pytest.raises(ValueError, match="error has NaN"):
        residual(np.array([[np.inf, 0.0]]))
