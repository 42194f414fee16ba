"""The profile: never worse than native, gauge blind, certified on request, compiled once."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.interaction import _search, intrinsic, profile, residual, tau

HEADS = np.load(Path(__file__).parent.parent / "data" / "minilm_heads.npz")


def softmax(logits):
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def native_head(seed, m=12, n=10, d=4, scale=0.4):
    rng = np.random.default_rng(seed)
    q, k = scale * rng.normal(size=(m, d)), scale * rng.normal(size=(n, d))
    return softmax(q @ k.T + rng.normal(size=n)), (q, k)


@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_never_worse_than_native(seed, random):
    a, native = native_head(seed)
    key = jax.random.key(seed) if random else None
    found = profile(a, (0.3, 0.8), (1, 2, 4, 6), native=native, key=key, steps=60)
    both = np.isfinite(found.native_term)
    assert (found.term[both] <= found.native_term[both]).all()
    assert (found.gain[~np.isnan(found.gain)] >= 1).all()
    assert (found.term >= 1).all()
    assert np.isfinite(found.native_term[:, 2:]).all()  # rank 4 is the whole head


def test_blind_to_the_gauge():
    a, (q, k) = native_head(3)
    g = np.random.default_rng(0).normal(size=(4, 4)) * [1e3, 1, 1, 1e-3]
    other = (q @ g + 5.0, k @ np.linalg.inv(g).T)
    one = profile(a, 0.5, (2, 4), steps=60)
    two = profile(softmax(np.log(a) + np.arange(12.0)[:, None]), 0.5, (2, 4), steps=60)
    assert np.allclose(one.kappa, two.kappa, rtol=1e-3)
    assert np.allclose(one.tau, two.tau, atol=1e-3)
    wild = profile(a, 0.5, (4,), native=other, steps=60)
    tame = profile(a, 0.5, (4,), native=(q, k), steps=60)
    assert wild.native_kappa[0] > 50 * tame.native_kappa[0]
    assert wild.term[0] == pytest.approx(tame.term[0], rel=0.3)


def test_numbers_are_what_they_claim_and_certify():
    a, _ = native_head(5)
    found = profile(a, 0.5, (1, 3), steps=200)
    for rank, item in zip(found.ranks, found.retained, strict=True):
        assert item.left.shape[1] == rank
        error = intrinsic(a) - item.left @ item.right.T
        assert item.tau == pytest.approx(float(tau(residual(error))), abs=1e-12)
        kappa, cost = item.certificates(a)
        assert kappa.verify()
        assert cost.verify()
        assert kappa.claim["lower"] <= item.kappa * (1 + 1e-9)
        assert item.kappa <= kappa.claim["upper"] * (1 + 2e-3)


def test_search_improves_on_the_svd_of_a_learned_head():
    logits = HEADS["logits"][0].astype(float)
    a = softmax(logits)
    searched = profile(a, 0.5, (16,), steps=300)
    start = profile(a, 0.5, (16,), steps=1)
    assert searched.term[0] < 1e-3 * start.term[0]
    assert searched.tau[0] < start.tau[0]


def test_full_rank_head_reaches_tau_zero():
    a, _ = native_head(1, d=2)
    found = profile(a, 0.2, (2,), steps=100)
    assert found.best_rank == 2
    assert np.isfinite(found.term[0])


def test_implied_constant_is_rank_over_term():
    a, _ = native_head(1, d=2)
    found = profile(a, 0.2, (2,), steps=60)
    item = found.retained[0]
    assert item.implied_constant(0.2, 3) * item.term(0.2) == pytest.approx(3)
    assert item.implied_constant(1e-9, 3) == 0  # void


def test_void_is_said_and_infinite():
    a, native = native_head(2, scale=2.0)
    found = profile(a, 0.01, (1,), native=native, steps=20)
    assert np.isinf(found.term[0])
    assert np.isnan(found.gain[0])
    assert found.best_rank == 0
    assert "void" in repr(found)


def lanes(count=5, m=8, n=6, r=3):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(count, m, r)), rng.normal(size=(count, n, r))
    mask = (np.arange(r) < rng.integers(1, r + 1, (count, 1))).astype(float)
    eps = rng.uniform(0.2, 1, count)
    c = rng.normal(size=(m, n))
    return [jnp.asarray(v) for v in (c, x, y, np.zeros((count, n)), mask, eps)]


def test_lanes_are_independent_and_jit_equals_eager():
    c, x, y, gauge, mask, eps = lanes()
    together = _search.search(c, x, y, gauge, mask, eps, steps=2, dtype=float)
    alone = [
        _search.search(c, *(v[i : i + 1] for v in (x, y, gauge, mask, eps)), steps=2, dtype=float)
        for i in range(5)
    ]
    for part in range(3):
        single = np.concatenate([a[part] for a in alone])
        assert np.allclose(together[part], single, atol=1e-8)
    with jax.disable_jit():
        eager = _search.search(c, *(v[:1] for v in (x, y, gauge, mask, eps)), steps=2, dtype=float)
    assert np.allclose(eager[0], alone[0][0], atol=1e-8)
    assert (np.asarray(together[0])[np.asarray(mask)[:, None, :].repeat(8, 1) == 0] == 0).all()


def test_one_compile_per_shape(monkeypatch):
    traces = []
    lane = _search._search_lane
    monkeypatch.setattr(_search, "_search_lane", lambda *a: traces.append(1) or lane(*a))
    profile(native_head(7)[0], 0.5, (1, 2), steps=5)
    profile(native_head(8)[0], 0.7, (2, 1), steps=6)
    assert len(traces) == 1


def test_float32_mode_gives_the_same_answer():
    a, _ = native_head(9)
    double = profile(a, 0.5, (2, 3), steps=100)
    with jax.enable_x64(False):
        single = profile(a, 0.5, (2, 3), steps=100)
    assert np.allclose(double.tau, single.tau, atol=0.02)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"ranks": (0,)}, "ranks"),
        ({"ranks": (10,)}, "ranks must be integers between 1 and min"),
        ({"ranks": (1.5,)}, "ranks must be integers"),
        ({"eps": "half"}, "eps"),
        ({"steps": 0}, "steps"),
        ({"attention": 3 * native_head(0)[0]}, "sum to 1"),
        ({"ranks": ()}, "ranks"),
        ({"eps": 0.0}, "eps"),
        ({"eps": (0.1, 3.0)}, "eps"),
        ({"native": (np.ones((12, 2)), np.ones((10, 3)))}, "shapes"),
        ({"native": (np.ones((12, 2)), np.arange(20.0).reshape(10, 2))}, "this head's q and k"),
        ({"attention": np.tril(np.ones((10, 10)))}, "full_support_block"),
        ({"attention": np.full((3, 3), np.nan)}, "NaN"),
    ],
)
def test_bad_input(change, word):
    arguments = {"attention": native_head(0)[0], "eps": 0.5, "ranks": (1,)} | change
    with pytest.raises(ValueError, match=word):
        profile(**arguments)
