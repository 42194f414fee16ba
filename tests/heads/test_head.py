"""Heads: the formula, its extremes, its derivatives, and the errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.heads import (
    Head,
    HeadSum,
    head_value,
    product_head,
    random_head,
    sigmoid_sum,
    sigmoids,
)


def reference(keys, values, log_weights, q):
    """The definition in extended precision, with no cleverness."""
    logits = keys.astype(np.longdouble) @ q + log_weights
    mass = np.exp(logits - logits.max())
    return (mass @ values) / mass.sum()


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 3)])
def test_matches_the_definition(rng, shape):
    keys, values, b = rng.normal(size=(7, 4)), rng.normal(size=shape), rng.normal(size=7)
    q = rng.normal(size=4)
    out = Head(keys, values, b)(q)
    assert out.shape == shape[1:]
    assert out.dtype == jnp.float64
    np.testing.assert_allclose(out, reference(keys, values, b, q), rtol=1e-14, atol=1e-15)


def test_sigmoid_sum_is_the_logistic_sum(rng):
    for d in (1, 2, 5):
        w, q = sigmoid_sum(d), rng.normal(size=d) * 5
        np.testing.assert_allclose(w(q), jax.nn.sigmoid(q).sum(), rtol=1e-14)
        assert (w.num_terms, w.num_heads, w.dim, w.value_shape) == (2 * d, d, d, ())


def test_sigmoids_with_shifts(rng):
    a, c, q = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2)
    np.testing.assert_allclose(sigmoids(a, c)(q), jax.nn.sigmoid(a @ q + c).sum(), rtol=1e-14)


@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 6),
    d=st.integers(1, 4),
    shift=st.floats(-50, 50),
)
def test_invariances(seed, n, d, shift):
    """Common shifts of keys and log-weights and permutations of atoms change nothing."""
    r = np.random.default_rng(seed)
    keys, values, b, q = r.normal(size=(n, d)), r.normal(size=n), r.normal(size=n), r.normal(size=d)
    out = Head(keys, values, b)(q)
    assert values.min() - 1e-12 <= out <= values.max() + 1e-12
    order = r.permutation(n)
    moved = Head((keys + shift)[order], values[order], (b - shift)[order])
    np.testing.assert_allclose(moved(q), out, rtol=1e-9, atol=1e-11)


def test_absent_atoms_count_for_nothing(rng):
    keys, values, b, q = (
        rng.normal(size=(5, 2)),
        rng.normal(size=5),
        rng.normal(size=5),
        rng.normal(size=2),
    )
    keep = np.array([True, False, True, True, False])
    masked = Head(np.where(keep[:, None], keys, 1e4), values, np.where(keep, b, -np.inf))
    np.testing.assert_allclose(masked(q), Head(keys[keep], values[keep], b[keep])(q), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
def test_values_and_gradients_are_finite_at_extremes(dtype, size):
    """Ties, logits of +-1e4 and absent atoms, through first and second derivatives."""
    keys = jnp.array([[size, 0], [size, 0], [-size, 0], [1e4, 1e4]], dtype)
    values = jnp.array([[1.0, 0], [2, 1], [3, 5], [4, 7]], dtype)
    b = jnp.array([0, 0, 0, -jnp.inf], dtype)
    q = jnp.ones(2, dtype)
    for sign in (1, -1):
        out = head_value(keys, values, b, sign * q)
        assert out.dtype == dtype
        assert jnp.isfinite(out).all()

        def loss(keys, values, b, q):
            return head_value(keys, values, b, q).sum()

        grads = jax.grad(loss, argnums=(0, 1, 2, 3))(keys, values, b, sign * q)
        hessian = jax.hessian(loss, argnums=3)(keys, values, b, sign * q)
        for g in (*grads, hessian):
            assert jnp.isfinite(g).all()
        assert grads[2][3] == 0  # an absent atom neither acts nor moves
        assert (grads[0][3] == 0).all()
    out = head_value(keys, values, b, q)
    if size == 1e4:
        np.testing.assert_allclose(out, [1.5, 0.5], rtol=1e-6)


def test_gradient_against_finite_differences(rng):
    head = random_head(jax.random.key(1), 5, 3, 2)
    q, v = rng.normal(size=3), rng.normal(size=2)

    def f(head, q):
        return head(q) @ v

    auto = jax.grad(f, argnums=1)(head, jnp.asarray(q))
    h = 1e-6
    for j in range(3):
        e = h * np.eye(3)[j]
        np.testing.assert_allclose(auto[j], (f(head, q + e) - f(head, q - e)) / (2 * h), atol=1e-8)
    tangent = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), head)
    _, forward = jax.jvp(lambda t: f(t, q), (head,), (tangent,))
    up = jax.tree.map(lambda a, b: a + h * b, head, tangent)
    down = jax.tree.map(lambda a, b: a - h * b, head, tangent)
    np.testing.assert_allclose(forward, (f(up, q) - f(down, q)) / (2 * h), atol=1e-7)


def test_single_atom_is_constant():
    head = Head([[3.0, -1.0]], [7.0])
    assert head([1e4, 1e4]) == 7
    assert (jax.grad(head)(jnp.ones(2)) == 0).all()


def test_jit_vmap_and_tree_map_agree_with_eager(rng):
    w = HeadSum([random_head(jax.random.key(i), i + 1, 3, 2) for i in range(3)])
    queries = jnp.asarray(rng.normal(size=(6, 3)))
    loop = jnp.stack([w(q) for q in queries])
    assert loop.shape == (6, 2)
    np.testing.assert_allclose(jax.vmap(w)(queries), loop, rtol=1e-13)
    np.testing.assert_allclose(eqx.filter_jit(eqx.filter_vmap(w))(queries), loop, rtol=1e-13)
    doubled = jax.tree.map(lambda x: 2 * x, w)
    assert isinstance(doubled.heads[0], Head)
    # Heads can be built while traced: shapes are checked, values cannot be.
    stacked = jax.vmap(lambda k: Head(k, jnp.ones(4)))(jnp.zeros((5, 4, 2)))
    assert stacked.keys.shape == (5, 4, 2)
    with pytest.raises(ValueError, match="values has shape"):
        jax.jit(lambda k: Head(k, jnp.ones(3)))(jnp.zeros((4, 2)))


def test_no_second_compile():
    traces = []

    @eqx.filter_jit
    def f(head, q):
        traces.append(1)
        return head(q)

    for seed in range(3):
        f(random_head(jax.random.key(seed), 4, 2), jnp.ones(2) * seed)
    assert len(traces) == 1


def test_product_head_equals_the_sum(rng):
    w = HeadSum([random_head(jax.random.key(i), n, 3, 2) for i, n in enumerate((2, 1, 3))])
    fused = product_head(w)
    assert fused.num_atoms == 6
    for q in rng.normal(size=(5, 3)) * 3:
        np.testing.assert_allclose(fused(q), w(q), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0]], [1.0, 2.0]), "values has shape"),
        (([0.0], [1.0]), "keys has shape"),
        ((np.zeros((0, 2)), np.zeros(0)), "keys has shape"),
        ((np.zeros((2, 0)), np.zeros(2)), "keys has shape"),
        ((np.zeros((2, 1)), np.zeros((2, 0))), "values has shape"),
        (([[np.nan]], [1.0]), "keys contains NaN"),
        (([[0.0]], [np.inf]), "values contains NaN"),
        (([[0.0]], [1.0], [np.nan]), "log_weights contains NaN"),
        (([[0.0]], [1.0], [np.inf]), "log_weights contains NaN"),
        (([[0.0]], [1.0], [-np.inf]), "every atom"),
        (([[0.0]], [1.0], [0.0, 0.0]), "log_weights has shape"),
        (([[1j]], [1.0]), "keys is complex"),
        (([[1.0], [1.0, 2.0]], [1.0, 1.0]), "keys must be a rectangular"),
        ((["key"], [1.0]), "keys must be"),
    ],
)
def test_bad_heads_raise_one_clear_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        Head(*arguments)


def test_bad_sums_and_queries():
    one, other = random_head(jax.random.key(0), 2, 2), random_head(jax.random.key(0), 2, 3)
    vector = random_head(jax.random.key(0), 2, 2, 1)
    with pytest.raises(ValueError, match="empty"):
        HeadSum([])
    with pytest.raises(ValueError, match="dim"):
        HeadSum([one, other])
    with pytest.raises(ValueError, match="value_shape"):
        HeadSum([one, vector])
    with pytest.raises(ValueError, match=r"heads\[1\] is a str"):
        HeadSum([one, "head"])
    with pytest.raises(ValueError, match="q has shape"):
        one(jnp.ones((4, 2)))
    with pytest.raises(ValueError, match="positive integer"):
        sigmoid_sum(0)
    with pytest.raises(ValueError, match="directions has shape"):
        sigmoids([1.0])
    with pytest.raises(ValueError, match="shifts has shape"):
        sigmoids([[1.0]], [1.0, 2.0])
    with pytest.raises(ValueError, match="num_atoms"):
        random_head(jax.random.key(0), 0, 2)
