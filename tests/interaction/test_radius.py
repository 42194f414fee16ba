"""The factor radius against SDP, closed forms, and every invariance."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from attnlab import interaction as it
from attnlab.interaction import _radius, factor_radius

seeds = st.integers(0, 2**32 - 1)


def sdp_radius(t, constants=True):
    """gamma_2 of T, or of T up to row and column constants, by semidefinite programming."""
    m, n = t.shape
    block = cp.Variable((m + n, m + n), PSD=True)
    level, u, v = cp.Variable(), cp.Variable((m, 1)), cp.Variable((1, n))
    free = u @ np.ones((1, n)) + np.ones((m, 1)) @ v if constants else 0
    rules = [block[:m, m:] == t + free, cp.diag(block) <= level]
    problem = cp.Problem(cp.Minimize(level), rules)
    problem.solve(solver=cp.CLARABEL)
    return float(level.value)


@pytest.mark.parametrize(("m", "n", "r"), [(8, 6, 1), (7, 9, 2), (10, 10, 4)])
def test_agrees_with_the_sdp(m, n, r, rng):
    x, y = rng.normal(size=(m, r)), rng.normal(size=(n, r))
    result = factor_radius(x, y)
    exact = sdp_radius(x @ y.T)
    assert result.lower <= exact * (1 + 1e-5)
    assert result.upper >= exact * (1 - 1e-5)
    assert result.relative_gap <= 1e-4
    assert result.upper <= sdp_radius(x @ y.T, constants=False) * (1 + 1e-4)


@pytest.mark.parametrize("kind", ["rank deficient", "ill-conditioned"])
def test_agrees_with_the_sdp_on_hard_interactions(kind, rng):
    x, y = rng.normal(size=(9, 4)), rng.normal(size=(8, 4))
    g = rng.normal(size=(4, 4))
    if kind == "rank deficient":
        x = np.c_[x[:, :2], x[:, :2] + 1.0]
    else:
        x, y = (x * [1, 1e-2, 1e-4, 1e-6]) @ g, y @ np.linalg.inv(g).T
    result = factor_radius(x, y)
    exact = sdp_radius(x @ y.T)
    assert result.lower <= exact * (1 + 1e-5)
    assert result.upper >= exact * (1 - 1e-5)
    assert result.relative_gap <= 1e-4


def test_orthonormal_interactions():
    """T = +-H, H a Hadamard matrix (sqrt(n) times an orthonormal one): kappa = gamma_2(H) = sqrt(n)."""
    for n in (2, 8, 16):
        h, eye = hadamard(n).astype(float), np.eye(n)
        result = factor_radius(np.r_[h, -h], np.r_[eye, -eye])
        assert result.lower == pytest.approx(np.sqrt(n), rel=1e-6)
        assert result.upper == pytest.approx(np.sqrt(n), rel=1e-6)


def test_closed_forms(rng):
    cross = np.concatenate([np.eye(5), -np.eye(5)])
    assert factor_radius(cross, cross).upper == pytest.approx(1, rel=1e-6)
    u, v = rng.normal(size=20), rng.normal(size=30)  # rank one: half the ranges
    one = factor_radius(u[:, None], v[:, None])
    assert one.lower <= np.ptp(u) * np.ptp(v) / 4 <= one.upper * (1 + 1e-12)
    for n in (2, 5, 17):  # simplex: centred vertices have squared length 1 - 1/n
        result = factor_radius(np.eye(n), np.eye(n))
        assert result.upper == pytest.approx(1 - 1 / n, rel=1e-6)
        assert result.lower == pytest.approx(1 - 1 / n, rel=1e-6)
    signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    assert factor_radius(signs, signs).lower == pytest.approx(3, rel=1e-6)


@settings(max_examples=12)
@given(st.sampled_from([1, 3, 6]), seeds)  # every width compiles once
def test_gauge_invariance(r, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(14, r)), rng.normal(size=(11, r))
    g = rng.normal(size=(r, r)) + 2 * np.eye(r)
    moved_x = x @ g + rng.normal(size=r)
    moved_y = y @ np.linalg.inv(g).T + rng.normal(size=r)
    one, two = factor_radius(x, y), factor_radius(moved_x, moved_y)
    assert one.lower <= two.upper * (1 + 1e-9)
    assert two.lower <= one.upper * (1 + 1e-9)
    swapped = factor_radius(y, x)
    assert swapped.lower <= one.upper * (1 + 1e-9)
    assert one.lower <= swapped.upper * (1 + 1e-9)
    assert one.upper <= np.linalg.norm(x, axis=1).max() * np.linalg.norm(y, axis=1).max() * (1 + 1e-9)


def test_every_gauge_leaves_kappa_alone(rng):
    head = it.Coordinates(rng.normal(size=(12, 3)), rng.normal(size=(9, 3)), rng.normal(size=9))
    g = rng.normal(size=(3, 3))
    moved = it.linear_gauge(head, g, np.linalg.inv(g))
    moved = it.translation_gauge(moved, rng.normal(size=3), rng.normal(size=3))
    moved = it.row_scalar_gauge(moved, 5 * rng.normal(size=12))
    moved = it.key_weight_gauge(moved, 5 * rng.normal(size=9))
    one = factor_radius(np.asarray(head.q), np.asarray(head.k))
    two = factor_radius(np.asarray(moved.q), np.asarray(moved.k))
    assert one.upper == pytest.approx(two.upper, rel=1e-10)
    assert one.lower == pytest.approx(two.lower, rel=1e-10)


@settings(max_examples=8)
@given(st.sampled_from([2, 4]), seeds)
def test_seminorm(r, seed):
    rng = np.random.default_rng(seed)
    x, y, z = (rng.normal(size=(9, r)) for _ in range(3))
    total = factor_radius(np.c_[x, x], np.c_[y, z])  # x y' + x z'
    assert total.lower <= (factor_radius(x, y).upper + factor_radius(x, z).upper) * (1 + 1e-9)
    assert factor_radius(3 * x, y).upper == pytest.approx(3 * factor_radius(x, y).upper, rel=2e-4)
    sub = factor_radius(x[:6], y[:7])
    assert sub.lower <= factor_radius(x, y).upper * (1 + 1e-9)


def hard_problems():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1024, 16)), rng.normal(size=(1024, 16))
    g = rng.normal(size=(16, 16))
    for digits in (4, 8, 12):
        scale = 10.0 ** -np.linspace(0, digits, 16)
        yield f"condition 1e{digits}", (x * scale) @ g, y @ np.linalg.inv(g).T
    wild = g * 10.0 ** np.linspace(-3, 3, 16)
    yield "wild gauge", x @ wild, y @ np.linalg.inv(wild).T
    yield "rank deficient", x[:, :5] @ rng.normal(size=(5, 16)), y
    yield "affinely dependent", np.c_[x[:, :3], x[:, :3] + 1.0, np.ones(1024)], y[:, :7]
    yield "far from the origin", x + 1e4, y - 1e3
    yield "heavy tails", rng.standard_t(1, (1024, 16)), rng.standard_t(1, (1024, 16))
    yield "plain", x, y


@pytest.mark.parametrize(("name", "x", "y"), list(hard_problems()))
def test_certified_gap_on_hard_problems(name, x, y):
    result = factor_radius(x, y)
    assert result.relative_gap <= 1e-4
    assert result.certificate.verify()
    attained = (x - result.gauge.x0) @ result.gauge.left_map
    assert np.abs(attained - result.left).max() <= 1e-4 * np.abs(result.left).max()


def test_weak_directions_left_out_by_the_optimal_design():
    """The dual optimum ignores a weak direction, which the primal must still keep inside its radius."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(12, 6)), rng.normal(size=(10, 6))
    for weak in ((1, 1, 0.8, 0.6, 8e-3, 6e-6), (1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)):
        assert factor_radius(x * weak, y).relative_gap <= 1e-4


def test_zero_interaction_and_tiny_sizes(rng):
    assert factor_radius(np.zeros((4, 2)), np.ones((3, 2))).upper < 1e-100
    single = factor_radius(rng.normal(size=(1, 3)), rng.normal(size=(5, 3)))  # a row constant
    assert single.upper < 1e-12
    assert single.certificate.verify()


def test_lanes_equal_single_runs(rng):
    ranks = [1, 3, 4, 2] * 3 + [4]  # 13 lanes: more than a CPU thread pool may hold
    problems = [_radius._reduced(rng.normal(size=(20, r)), rng.normal(size=(15, r))) for r in ranks]
    together = _radius.solve_designs(problems, 1e-4)
    for problem, design in zip(problems, together, strict=True):
        alone = _radius.solve_designs([problem], 1e-4)[0]
        assert design.upper <= (1 + 1e-4) * design.lower
        assert design.upper == pytest.approx(alone.upper, rel=1e-4)


def test_step_jit_equals_eager_and_does_not_recompile(rng):
    x, y = _radius._reduced(rng.normal(size=(12, 3)), rng.normal(size=(10, 3)))
    row, column = np.full(12, 1 / 12), np.full(10, 0.1)
    x, y, spread = _radius._balanced(x, y, row, column)
    lane = [jnp.asarray(a) for a in (x, y, row, column, spread)]
    traces = []
    step = jax.jit(lambda *lane: traces.append(1) or _radius._advance(lane))
    compiled = step(*lane, 5)
    with jax.disable_jit():
        eager = _radius._advance((*lane, jnp.asarray(5)))
    for a, b in zip(compiled, eager, strict=True):
        assert np.allclose(a, b, atol=1e-12)
    step(*lane, 9)
    assert len(traces) == 1


def test_rounds_and_lane_counts_do_not_recompile(rng, monkeypatch):
    traces = []
    advance = _radius._advance
    monkeypatch.setattr(_radius, "_advance", lambda lane: traces.append(1) or advance(lane))
    for lanes in (1, 7):
        problems = [_radius._reduced(rng.normal(size=(12, 3)), rng.normal(size=(9, 3))) for _ in range(lanes)]
        _radius.solve_designs(problems, 1e-3)
    assert len(traces) == 1


def test_float32_search_is_certified_all_the_same(rng):
    x, y = rng.normal(size=(64, 4)), rng.normal(size=(48, 4))
    with jax.enable_x64(False):
        result = factor_radius(x, y)
    assert result.relative_gap <= 1e-3
    assert result.certificate.verify()
    double = factor_radius(x, y)
    assert double.lower <= result.upper
    assert result.lower <= double.upper


def test_bad_input():
    with pytest.raises(ValueError, match="one width"):
        factor_radius(np.ones((3, 2)), np.ones((3, 4)))
    with pytest.raises(ValueError, match="X has NaN"):
        factor_radius(np.full((3, 2), np.nan), np.ones((3, 2)))
    with pytest.raises(ValueError, match="overflow"):
        factor_radius(np.full((3, 2), 1e200), np.ones((3, 2)))
    with pytest.raises(ValueError, match="tol"):
        factor_radius(np.ones((3, 2)), np.ones((3, 2)), tol=0)
