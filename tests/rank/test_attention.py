"""Attention matrices: stable softmax, masks, gauges, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.rank import attention


def test_known_values_and_rows_sum_to_one(rng):
    q, k = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    a = attention(q, k, beta=0.7, log_weights=rng.normal(size=6))
    assert a.shape == (4, 6)
    np.testing.assert_allclose(a.sum(1), 1, atol=1e-15)
    two = attention([[1.0]], [[0.0], [np.log(3.0)]])
    np.testing.assert_allclose(two, [[0.25, 0.75]])


@given(st.integers(0, 10**6))
def test_gauges_leave_the_matrix_alone(seed):
    rng = np.random.default_rng(seed)
    q, k, g = rng.normal(size=(5, 2)), rng.normal(size=(6, 2)), rng.normal(size=(2, 2)) + 3 * np.eye(2)
    a = attention(q, k, 1.3)
    np.testing.assert_allclose(attention(q @ g, k @ np.linalg.inv(g).T, 1.3), a, atol=1e-12)
    np.testing.assert_allclose(attention(q, k + 5.0, 1.3), a, atol=1e-12)
    np.testing.assert_allclose(attention(q + 2, k, 1.3, log_weights=-1.3 * 2 * k.sum(1)), a, atol=1e-12)


def test_masks_give_exact_zeros_and_huge_logits_stay_finite(rng):
    q = rng.normal(size=(5, 2))
    a = attention(q, q, 1e4, mask=np.tril(np.ones((5, 5), bool)))
    assert np.isfinite(a).all()
    assert (np.triu(np.asarray(a), 1) == 0).all()
    absent = attention(q, q, log_weights=[0, -np.inf, 0, 0, 0])
    assert (np.asarray(absent)[:, 1] == 0).all()


def test_jit_vmap_grad_and_float32(rng):
    q, k = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 5, 2))
    loop = np.stack([attention(a, b, 2.0) for a, b in zip(q, k, strict=True)])
    np.testing.assert_allclose(jax.jit(jax.vmap(lambda a, b: attention(a, b, 2.0)))(q, k), loop, atol=1e-14)
    assert np.isfinite(jax.grad(lambda x: attention(x, k[0])[0, 0])(jnp.asarray(q[0]))).all()
    assert attention(q[0].astype(np.float32), k[0].astype(np.float32)).dtype == jnp.float32


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([[1.0, 2.0]], [[1.0]]), "same d"),
        ((np.zeros((0, 2)), np.ones((1, 2))), "non-empty"),
        (([[np.nan]], [[1.0]]), "q has NaN"),
        (([[1.0]], [[np.inf]]), "k has NaN"),
        (([[1.0]], [[1.0]], np.nan), "rescale q, k or beta."),
        ((np.full((1, 1), 1e30, np.float32),) * 2, "too large for float32 logits.*or pass float64"),
        (([[1.0]], [[1.0]], 1.0, [0.0, 1.0]), "log_weights must have shape"),
        (([[1.0]], [[1.0]], 1.0, [-np.inf]), "no key left"),
        (([[1.0]], [[1.0]], 1.0, None, [[1.0]]), "mask must be boolean"),
    ],
)
def test_bad_input_is_one_clear_sentence(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        attention(*arguments)
