"""Families of heads that theory, tests and experiments use."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._precision import as_jax
from ._head import Head, HeadSum


def sigmoids(directions: Any, shifts: Any = None) -> HeadSum:
    """``sum_j sigma(<a_j, q> + c_j)``, each term a head with keys ``0, a_j`` and values ``0, 1``.

    Arguments:
        directions: ``(h, d)``, the rows ``a_j``.
        shifts: ``(h,)``, default 0.

    Raises:
        ValueError: wrong shapes or non-finite numbers.

    >>> float(sigmoids([[1.0], [2.0]])([0.0]))
    1.0
    """
    directions = as_jax("directions", directions)
    if directions.ndim != 2 or 0 in directions.shape:
        raise ValueError(f"directions has shape {directions.shape}; give (h, d), both positive.")
    h, d = directions.shape
    shifts = jnp.zeros(h, directions.dtype) if shifts is None else as_jax("shifts", shifts)
    if shifts.shape != (h,):
        raise ValueError(f"shifts has shape {shifts.shape}; with {h} directions give ({h},).")
    origin, values = jnp.zeros(d, directions.dtype), jnp.array([0, 1], directions.dtype)
    return HeadSum(
        [
            Head(jnp.stack([origin, a]), values, jnp.stack([jnp.zeros_like(c), c]))
            for a, c in zip(directions, shifts, strict=True)
        ]
    )


def sigmoid_sum(d: int) -> HeadSum:
    """``W_d(q) = sum_{j<=d} sigma(q_j)``: 2d head-atom terms, but 2^d atoms as one head [M].

    Raises:
        ValueError: ``d`` is not a positive integer.

    >>> w = sigmoid_sum(3)
    >>> float(w([0.0, 0.0, 0.0])), w.num_terms
    (1.5, 6)
    """
    if isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 1:
        raise ValueError(f"d must be a positive integer, got {d!r}.")
    return sigmoids(jnp.eye(int(d)))


def random_head(
    key: Array, num_atoms: int, dim: int, value_dim: int | None = None, scale: float = 1.0
) -> Head:
    """Independent standard normal keys (times ``scale``), values and log-weights.

    Arguments:
        key: a JAX random key.
        num_atoms, dim: at least 1.
        value_dim: ``p`` for values ``(n, p)``; ``None`` for scalar values ``(n,)``.
        scale: standard deviation of each key coordinate.

    >>> random_head(jax.random.key(0), 5, 2).num_atoms
    5
    """
    for name, size in (("num_atoms", num_atoms), ("dim", dim), ("value_dim", value_dim)):
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}.")
    keys, values, weights = jax.random.split(key, 3)
    shape = (num_atoms,) if value_dim is None else (num_atoms, value_dim)
    return Head(
        scale * jax.random.normal(keys, (num_atoms, dim)),
        jax.random.normal(values, shape),
        jax.random.normal(weights, (num_atoms,)),
    )


def product_head(target: HeadSum) -> Head:
    """The plain product fusion: one head equal to the sum everywhere, with ``prod_h n_h`` atoms.

    Multiplying the denominators out gives one atom per choice of one atom in each head; its key,
    log-weight and value are the sums over the choice. (Whether fewer atoms do is the question that
    ``attnlab.fusion`` answers.)

    >>> product_head(sigmoid_sum(3)).num_atoms
    8
    """
    first, *rest = target.heads
    keys, values, weights = first.keys, first.values, first.log_weights
    for head in rest:
        n = keys.shape[0] * head.num_atoms
        keys = (keys[:, None, :] + head.keys[None, :, :]).reshape(n, -1)
        values = (values[:, None] + head.values[None]).reshape(n, *head.value_shape)
        weights = (weights[:, None] + head.log_weights[None, :]).reshape(n)
    return Head(keys, values, weights)
