"""Contract of the lane searches: lanes are independent, one compile, both precisions, better than starts."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from attnlab._lanes import WIDTH
from attnlab.rank import _descend as descend_module
from attnlab.rank import cross, row_cover, svd_tail, truncated_svd, two_summing
from attnlab.rank._descend import LaneCode
from attnlab.rank._lower import complete, polish_lower, search_lower
from attnlab.rank._upper import polish_upper, search_upper

SEARCHES = {"lower": search_lower, "upper": search_upper}


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(10, 3)) @ rng.normal(size=(3, 12))
    raw = np.exp(logits - logits.max(1, keepdims=True))
    return raw / raw.sum(1, keepdims=True)


def bound(kind, a, witness):
    """Lower or upper bound on a_{k+1} in float64."""
    if kind == "upper":
        return np.abs(a - witness[0] @ witness[1]).sum(1).max()
    return 1 / np.abs(witness[1]).sum(1).max()


def run(kind, a, ranks, starts, steps=150, dtype=np.float64, seed=0, width=7):
    rng = np.random.default_rng(seed)
    return SEARCHES[kind](a, np.array(ranks), np.array(starts), steps, dtype, rng, width)


@pytest.mark.parametrize("kind", SEARCHES)
def test_lanes_do_not_see_each_other(kind, matrix):
    """vmap = loop: a lane alone and among others gives the same result."""
    together, _ = run(kind, matrix, [2, 3, 5], [0, 0, 0])
    for rank, witness in zip([2, 3, 5], together, strict=True):
        alone, _ = run(kind, matrix, [rank], [0])
        for x, y in zip(alone[0], witness, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", SEARCHES)
def test_jit_equals_eager(kind, matrix):
    import jax

    compiled, _ = run(kind, matrix, [3], [0], steps=2)
    with jax.disable_jit():
        eager, _ = run(kind, matrix, [3], [0], steps=2)
    for x, y in zip(compiled[0], eager[0], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", SEARCHES)
def test_rank_start_seed_steps_and_lane_count_do_not_recompile(kind, matrix, monkeypatch):
    traces = []
    original = descend_module._lane

    def counting(problem, data, lane, steps):
        traces.append(data.shape)
        return original(problem, data, lane, steps)

    monkeypatch.setattr(descend_module, "_lane", counting)
    fresh = matrix[:9]  # a shape no other test compiles
    run(kind, fresh, [2], [0], steps=5)
    first = len(traces)
    assert first >= 1
    run(kind, fresh, [3, 4, 5], [1, 2, 3], steps=9, seed=7)
    run(kind, fresh, np.full(WIDTH["cpu"] + 3, 4), np.arange(WIDTH["cpu"] + 3), steps=2)
    run(kind, fresh[::-1], [6], [5], steps=2)
    assert len(traces) == first


@pytest.mark.parametrize("kind", SEARCHES)
def test_float32_finds_what_float64_finds(kind, matrix):
    single, _ = run(kind, matrix, [2, 4], [0, 0], steps=400, dtype=jnp.float32)
    double, _ = run(kind, matrix, [2, 4], [0, 0], steps=400)
    for x, y in zip(single, double, strict=True):
        assert all(part.dtype == np.float64 for part in x)
        assert bound(kind, matrix, x) == pytest.approx(bound(kind, matrix, y), rel=0.02)


@pytest.mark.parametrize("kind", SEARCHES)
def test_search_improves_on_its_start(kind, matrix):
    found, codes = run(kind, matrix, [2, 4, 6], [0, 0, 0], steps=500)
    assert set(codes) <= set(LaneCode)
    start, _ = run(kind, matrix, [2, 4, 6], [0, 0, 0], steps=0)
    for before, after in zip(start, found, strict=True):
        if kind == "upper":
            assert bound(kind, matrix, after) < bound(kind, matrix, before)
        else:
            assert bound(kind, matrix, after) > 0.99 * bound(kind, matrix, before)


def test_the_lower_witness_satisfies_its_identity(matrix):
    found, _ = run("lower", matrix, [3, 6], [0, 4])
    for right, weights in found:
        np.testing.assert_allclose(weights @ matrix @ right, right, atol=1e-9)


def test_completion_covers_the_whole_affine_space(matrix, rng):
    left, right, free = rng.normal(size=(4, 10)), rng.normal(size=(12, 4)), rng.normal(size=(12, 10))
    r, c = complete(matrix, left, right, free)
    np.testing.assert_allclose(c @ matrix @ r, r, atol=1e-8)


def test_polish_solves_the_linear_programmes(matrix):
    """For the plain SVD basis and factors the polish must help, and never hurt."""
    u, s, vt = np.linalg.svd(matrix)
    right = vt[:4].T / s[:4]
    weights = polish_lower(matrix, right, right @ u[:, :4].T)
    np.testing.assert_allclose(weights @ matrix @ right, right, atol=1e-7)
    assert np.abs(weights).sum(1).max() <= np.abs(right @ u[:, :4].T).sum(1).max() * (1 + 1e-9)
    left, w = truncated_svd(matrix, 3)
    better = polish_upper(matrix, left, w)
    assert np.abs(matrix - better @ w).sum(1).max() < np.abs(matrix - left @ w).sum(1).max()


def test_two_summing_beats_the_plain_tail(matrix):
    def tail(r, p):
        s = np.linalg.svd(np.sqrt(p.T) * (matrix @ r), compute_uv=False)
        return np.sqrt((s[3:] ** 2).sum())

    r, p = two_summing(matrix, 3)
    assert tail(r, p) > 1.05 * tail(*svd_tail(matrix))
    np.testing.assert_allclose((r * r).sum(1), 1, atol=1e-12)
    assert p.sum() == pytest.approx(1)


@pytest.mark.parametrize("make", [truncated_svd, row_cover, cross])
def test_constructions_are_exact_at_their_rank(make):
    rng = np.random.default_rng(1)
    a = np.eye(3)[rng.integers(0, 3, 8)] @ rng.dirichlet(np.ones(6), 3)
    u, w = make(a, 3)
    np.testing.assert_allclose(u @ w, a, atol=1e-9)


def test_many_lanes_with_no_environment_variable():
    """13 and 32 lanes in a fresh process: batched LAPACK would hang here."""
    code = (
        "import jax, numpy as np; jax.config.update('jax_enable_x64', True)\n"
        "from attnlab.rank._lower import search_lower\n"
        "from attnlab.rank._upper import search_upper\n"
        "a = np.random.default_rng(0).dirichlet(np.ones(64), 64)\n"
        "for n in (13, 32):\n"
        "    for search in (search_lower, search_upper):\n"
        "        r = np.arange(n) % 12 + 1\n"
        "        search(a, r, np.arange(n) % 4, 20, np.float64, np.random.default_rng(0), 33)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
