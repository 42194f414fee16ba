"""The intrinsic interaction, its gauges, and full-support blocks."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import interaction as it

HEADS = np.load(Path(__file__).parent.parent / "data" / "minilm_heads.npz")


def coordinates(seed, m=9, n=7, d=4):
    rng = np.random.default_rng(seed)
    return it.Coordinates(rng.normal(size=(m, d)), rng.normal(size=(n, d)), rng.normal(size=n))


def gauges(seed, d=4):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-3, 3, d)
    return {
        "linear": lambda c: it.linear_gauge(c, matrix, np.linalg.inv(matrix)),
        "translation": lambda c: it.translation_gauge(
            c, rng.normal(size=c.q.shape[1]), rng.normal(size=c.q.shape[1])
        ),
        "row scalars": lambda c: it.row_scalar_gauge(c, rng.normal(size=c.q.shape[0])),
        "key weights": lambda c: it.key_weight_gauge(c, rng.normal(size=c.k.shape[0])),
    }


@pytest.mark.parametrize("name", ["linear", "translation", "row scalars", "key weights"])
@pytest.mark.parametrize("seed", range(4))
def test_gauges_leave_attention_and_descriptors_alone(name, seed):
    before = coordinates(seed)
    after = gauges(seed)[name](before)
    assert np.abs(after.attention - before.attention).max() < 1e-10
    c0, c1 = it.intrinsic(before.attention), it.intrinsic(after.attention)
    assert np.abs(c0 - c1).max() < 1e-10
    assert it.residual(c0) == pytest.approx(it.residual(c1), abs=1e-10)


@pytest.mark.parametrize("seed", [0])
def test_every_descriptor_is_the_same_in_every_gauge(seed):
    def descriptors(head):
        a, q, k = (np.asarray(v) for v in (head.attention, head.q, head.k))
        radius = it.factor_radius(q, k)
        floors = [it.tau_floor(a, r) for r in (0, 1, 2)]
        partial = np.linalg.svd(it.intrinsic(a))
        rest = it.intrinsic(a) - partial[1][0] * np.outer(partial[0][:, 0], partial[2][0])
        costs = [it.residual(rest), it.residual(rest, gauge="none"), float(it.tau(it.residual(rest)))]
        return np.array([radius.lower, radius.upper, it.svd_dimension(a, 0.3), *floors, *costs])

    before = coordinates(seed)
    expected = descriptors(before)
    for name, gauge in gauges(seed).items():
        assert np.allclose(descriptors(gauge(before)), expected, rtol=1e-10, atol=1e-10), name


@pytest.mark.parametrize("seed", range(3))
def test_all_gauges_in_a_row(seed):
    before = after = coordinates(seed)
    for name, gauge in gauges(seed).items():
        if name != "linear":
            after = gauge(after)
    after = it.row_scalar_gauge(after, np.ones(9))
    assert np.abs(after.attention - before.attention).max() < 1e-10
    assert after.q.shape[1] == before.q.shape[1] + 3


def test_key_weights_do_not_change_the_interaction():
    c = coordinates(0)
    reweighted = it.Coordinates(c.q, c.k, c.log_weights + np.arange(7.0))
    assert np.abs(reweighted.attention - c.attention).max() > 0.1
    assert np.abs(it.intrinsic(reweighted.attention) - it.intrinsic(c.attention)).max() < 1e-12


def test_intrinsic_is_the_centred_logit_matrix():
    logits = HEADS["logits"][0].astype(float)
    attention = np.asarray(jax.nn.softmax(jnp.asarray(logits), axis=1))
    expected = it.double_centre(logits)
    assert np.abs(it.intrinsic(attention) - expected).max() < 1e-10
    assert np.abs(expected.sum(0)).max() < 1e-10


def test_native_radius_is_not_gauge_invariant():
    c = coordinates(1)
    wild = it.linear_gauge(c, np.diag([1e4, 1, 1, 1]), np.diag([1e-4, 1, 1, 1]))
    assert wild.native_radius > 100 * c.native_radius


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_causal_block_is_the_largest_and_has_full_support(n, seed):
    rng = np.random.default_rng(seed)
    a = np.tril(rng.uniform(0.1, 1, (n, n)))
    a /= a.sum(1, keepdims=True)
    block = it.full_support_block(a)
    assert (block.attention > 0).all()
    assert np.allclose(block.attention.sum(1), 1)
    assert block.attention.size == max((n - t) * (t + 1) for t in range(n))
    rows, keys = slice(block.first_query, None), slice(0, block.last_key + 1)
    assert np.allclose(it.intrinsic(block.attention), it.intrinsic(a[rows, keys]))


def test_block_of_full_support_is_everything():
    a = np.full((3, 5), 0.2)
    assert it.full_support_block(a).attention.shape == (3, 5)
    assert it.full_support_block(a, first_query=1).attention.shape == (2, 5)


def test_bad_input():
    with pytest.raises(ValueError, match="full_support_block"):
        it.intrinsic(np.tril(np.ones((3, 3))))
    with pytest.raises(ValueError, match="NaN or infinite"):
        it.intrinsic(np.array([[np.nan, 1.0]]))
    with pytest.raises(ValueError, match="non-empty real matrix"):
        it.intrinsic(np.ones(3))
    with pytest.raises(ValueError, match="no full-support block"):
        it.full_support_block(np.triu(np.ones((3, 3)), 1))
    with pytest.raises(ValueError, match="negative"):
        it.full_support_block(-np.ones((2, 2)))
    with pytest.raises(ValueError, match="differ in length"):
        it.intrinsic([[1, 2], [1]])
    with pytest.raises(ValueError, match=r"queries 2..4 and keys 0..2"):  # says which block to take
        it.intrinsic(np.tril(np.ones((5, 5))))
    with pytest.raises(ValueError, match="first_query must be an integer"):
        it.full_support_block(np.ones((2, 2)), first_query=0.5)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda c: it.Coordinates(np.ones((2, 3)), np.ones((2, 4))), "one width"),
        (lambda c: it.Coordinates(np.full((2, 3), np.nan), np.ones((2, 3))), "q has NaN"),
        (lambda c: it.Coordinates(np.ones((2, 3)), np.ones((2, 3)), np.zeros(3)), "log_weights"),
        (lambda c: it.linear_gauge(c, np.eye(3), np.eye(3)), "matrix must have shape"),
        (lambda c: it.linear_gauge(c, 2 * np.eye(4), np.eye(4)), "not the inverse"),
        (lambda c: it.linear_gauge(c, np.zeros((4, 4)), np.zeros((4, 4))), "not the inverse"),
        (lambda c: it.translation_gauge(c, np.ones(3), np.ones(4)), "query_shift"),
        (lambda c: it.row_scalar_gauge(c, np.ones(7)), "row_scalars"),
        (lambda c: it.key_weight_gauge(c, np.full(7, np.inf)), "column_scalars has NaN"),
    ],
)
def test_bad_coordinates(make, word):
    with pytest.raises(ValueError, match=word):
        make(coordinates(0))


def test_float64_is_not_lost_in_silence():
    with jax.enable_x64(False), pytest.raises(RuntimeError, match="jax_enable_x64"):
        it.Coordinates(np.ones((2, 3)), np.ones((2, 3)))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gauges_run_under_jit_and_vmap(dtype):
    c = coordinates(0)
    batch = jnp.stack([jnp.asarray(c.q, dtype) * s for s in (1.0, 2.0)])
    k, shift = jnp.asarray(c.k, dtype), jnp.ones(4, dtype)

    def moved(q):
        head = it.linear_gauge(it.Coordinates(q, k), 2 * jnp.eye(4, dtype=dtype), jnp.eye(4, dtype=dtype) / 2)
        return it.translation_gauge(head, shift, shift).attention

    together = jax.jit(jax.vmap(moved))(batch)
    assert together.dtype == dtype
    for one, q in zip(together, batch, strict=True):
        assert np.allclose(one, moved(q), atol=1e-6 if dtype == jnp.float32 else 1e-12)
