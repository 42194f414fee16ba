"""A softmax head, a sum of heads, and the formula behind both."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import Precision

from .._precision import as_jax, concrete


def softmax_weights(logits: Array, present: Array) -> Array:
    """Softmax over the last axis with absent entries, finite in value and in every derivative.

    Absent entries get weight exactly 0 and gradient exactly 0, whatever their logit. The maximum is
    subtracted outside differentiation, so ties cost nothing.

    Arguments:
        logits: ``(..., n)``, finite where present.
        present: ``(..., n)`` booleans, at least one true in each row.

    Returns:
        ``(..., n)`` non-negative, each row sums to 1.
    """
    # Double where: an untaken branch that overflows would still put NaN into the gradient.
    safe = jnp.where(present, logits, 0)
    top = jnp.max(jnp.where(present, safe, -jnp.inf), axis=-1, keepdims=True)
    shifted = jnp.where(present, safe - jax.lax.stop_gradient(top), 0)
    mass = jnp.where(present, jnp.exp(shifted), 0)
    return mass / jnp.sum(mass, axis=-1, keepdims=True)


def head_value(keys: Array, values: Array, log_weights: Array, q: Array) -> Array:
    """``sum_i v_i exp(<k_i, q> + b_i) / sum_i exp(<k_i, q> + b_i)`` as a pure function.

    Arguments:
        keys: ``(n, d)``; values: ``(n, p)`` or ``(n,)``; log_weights: ``(n,)``, ``-inf`` = absent.
        q: ``(d,)``, one query (use ``jax.vmap`` for more).

    Returns:
        ``(p,)``, or a scalar for scalar values.
    """
    present = log_weights > -jnp.inf
    bias = jnp.where(present, log_weights, 0)
    logits = jnp.matmul(keys, q, precision=Precision.HIGHEST) + bias
    return jnp.matmul(softmax_weights(logits, present), values, precision=Precision.HIGHEST)


class Head(eqx.Module):
    """One softmax head: a finite set of atoms (key, log-weight, value) in natural logarithms.

    ``head(q) = sum_i v_i exp(<k_i, q> + b_i) / sum_i exp(<k_i, q> + b_i)``, with no ``1/sqrt(d)``:
    scale the keys if you want one.

    Arguments:
        keys: ``(n, d)`` finite numbers, ``n >= 1``, ``d >= 1``.
        values: ``(n, p)``, or ``(n,)`` for a scalar head; finite.
        log_weights: ``(n,)``, default 0; ``-inf`` marks an absent atom; not all may be absent.

    Raises:
        ValueError: wrong shapes, empty arrays, NaN or infinity, or every atom absent. Values are
            checked only while they are concrete, so heads may be built under ``jit`` and ``vmap``.
        RuntimeError: NumPy float64 input while float64 is off in JAX.

    >>> head = Head(keys=[[0.0], [1.0]], values=[0.0, 1.0])  # the logistic function
    >>> float(head([0.0]))
    0.5
    >>> head.num_atoms
    2
    """

    keys: Array
    values: Array
    log_weights: Array

    def __init__(self, keys: Any, values: Any, log_weights: Any = None):
        keys, values = as_jax("keys", keys), as_jax("values", values)
        if log_weights is None:
            log_weights = jnp.zeros(keys.shape[:1], keys.dtype)
        log_weights = as_jax("log_weights", log_weights)
        dtype = jnp.result_type(keys, values, log_weights)
        self.keys, self.values = keys.astype(dtype), values.astype(dtype)
        self.log_weights = log_weights.astype(dtype)

    def __check_init__(self):
        if self.keys.ndim != 2 or 0 in self.keys.shape:
            raise ValueError(f"keys has shape {self.keys.shape}; give (n, d) with n >= 1 and d >= 1.")
        n = self.keys.shape[0]
        shape = self.values.shape
        if self.values.ndim not in (1, 2) or shape[0] != n or 0 in shape:
            raise ValueError(f"values has shape {shape}; with {n} keys give ({n},) or ({n}, p), p >= 1.")
        if self.log_weights.shape != (n,):
            raise ValueError(f"log_weights has shape {self.log_weights.shape}; with {n} keys give ({n},).")
        for name, array in (("keys", self.keys), ("values", self.values)):
            known = concrete(array)
            if known is not None and not np.isfinite(known).all():
                raise ValueError(f"{name} contains NaN or infinity; give finite numbers.")
        weights = concrete(self.log_weights)
        if weights is not None:
            if np.isnan(weights).any() or (weights == np.inf).any():
                raise ValueError(
                    "log_weights contains NaN or +inf; give numbers, or -inf for an absent atom."
                )
            if (weights == -np.inf).all():
                raise ValueError("log_weights is -inf for every atom; leave at least one present.")

    def __call__(self, q: Any) -> Array:
        """The head at one query ``q`` of shape ``(d,)``: ``(p,)``, or a scalar for scalar values.

        Raises:
            ValueError: ``q`` is not of shape ``(d,)``.
        """
        return head_value(self.keys, self.values, self.log_weights, _query(q, self.dim))

    @property
    def num_atoms(self) -> int:
        """Number of rows of ``keys`` (absent atoms keep their row, so this is static under jit)."""
        return self.keys.shape[0]

    @property
    def dim(self) -> int:
        """Dimension ``d`` of queries and keys."""
        return self.keys.shape[1]

    @property
    def value_shape(self) -> tuple[int, ...]:
        """``(p,)``, or ``()`` for scalar values."""
        return self.values.shape[1:]


class HeadSum(eqx.Module):
    """A sum of independently normalised heads, which may differ in their number of atoms.

    Arguments:
        heads: one or more ``Head`` of one dimension and one value shape.

    Raises:
        ValueError: no head, something that is not a ``Head``, or shapes that disagree.

    >>> one = Head(keys=[[0.0], [1.0]], values=[0.0, 1.0])
    >>> constant = Head(keys=[[0.0]], values=[2.0])
    >>> w = HeadSum([one, constant])
    >>> float(w([0.0])), w.num_terms
    (2.5, 3)
    """

    heads: tuple[Head, ...]

    def __init__(self, heads: Sequence[Head]):
        self.heads = tuple(heads)

    def __check_init__(self):
        if not self.heads:
            raise ValueError("heads is empty; give at least one Head.")
        for i, head in enumerate(self.heads):
            if not isinstance(head, Head):
                raise ValueError(f"heads[{i}] is a {type(head).__name__}; give Head objects.")
            for what in ("dim", "value_shape"):
                mine, first = getattr(head, what), getattr(self.heads[0], what)
                if mine != first:
                    raise ValueError(
                        f"heads[{i}] has {what} {mine} but heads[0] has {first}; they must agree."
                    )

    def __call__(self, q: Any) -> Array:
        """The sum at one query ``q`` of shape ``(d,)``: ``(p,)``, or a scalar for scalar values."""
        q = _query(q, self.dim)
        return sum((head(q) for head in self.heads[1:]), self.heads[0](q))

    @property
    def num_terms(self) -> int:
        """Head-atom terms: the numbers of atoms added up over the heads."""
        return sum(head.num_atoms for head in self.heads)

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return len(self.heads)

    @property
    def dim(self) -> int:
        """Dimension ``d`` of queries and keys."""
        return self.heads[0].dim

    @property
    def value_shape(self) -> tuple[int, ...]:
        """``(p,)``, or ``()`` for scalar values."""
        return self.heads[0].value_shape


def _query(q: Any, dim: int) -> Array:
    q = as_jax("q", q)
    if q.shape != (dim,):
        raise ValueError(
            f"q has shape {q.shape}; give one query of shape ({dim},), or use jax.vmap for a batch."
        )
    return q
