"""Coordinates of a head and the gauge transformations that leave its attention alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._precision import as_jax, concrete

INVERSE = 1e-3  # how far G G^-1 may be from I, relative to |G||G^-1|; catches a wrong matrix only


class Coordinates(eqx.Module):
    """Native coordinates of a head: logits = q k' + log_weights (no 1/sqrt(d): put it into q).

    Attributes:
        q: shape (m, d). k: shape (N, d). log_weights: shape (N,), the key weights; zeros if absent.

    Raises:
        ValueError: shapes that do not fit, or values that are not finite.
        RuntimeError: NumPy float64 while float64 is off in JAX.
    """

    q: Array
    k: Array
    log_weights: Array

    def __init__(self, q: ArrayLike, k: ArrayLike, log_weights: ArrayLike | None = None):
        self.q, self.k = as_jax("q", q), as_jax("k", k)
        if self.q.ndim != 2 or self.k.ndim != 2 or self.q.shape[1] != self.k.shape[1]:
            raise ValueError(
                f"q and k must be matrices of one width, got shapes {self.q.shape} and {self.k.shape}."
            )
        zeros = jnp.zeros(self.k.shape[0], self.k.dtype)
        self.log_weights = zeros if log_weights is None else as_jax("log_weights", log_weights)
        if self.log_weights.shape != self.k.shape[:1]:
            raise ValueError(
                f"log_weights must have shape {self.k.shape[:1]}, one per key, got {self.log_weights.shape}."
            )
        for name in ("q", "k", "log_weights"):
            _finite(name, getattr(self, name))

    @property
    def logits(self) -> Array:
        """Shape (m, N)."""
        product = jnp.matmul(self.q, self.k.T, precision=jax.lax.Precision.HIGHEST)
        return product + self.log_weights[None, :]

    @property
    def attention(self) -> Array:
        """Softmax rows, shape (m, N)."""
        return jax.nn.softmax(self.logits, axis=-1)

    @property
    def native_radius(self) -> Array:
        """max_i |q_i| max_j |k_j|: what the factor radius is without any gauge optimisation."""
        return jnp.linalg.norm(self.q, axis=1).max() * jnp.linalg.norm(self.k, axis=1).max()

    def __repr__(self) -> str:
        return f"Coordinates(q {self.q.shape}, k {self.k.shape})"


def linear_gauge(coordinates: Coordinates, matrix: ArrayLike, inverse: ArrayLike) -> Coordinates:
    """(q, k) -> (q G, k G^{-T}): logits unchanged. The caller gives both G and its inverse (d, d).

    Raises:
        ValueError: wrong shapes, or matrices that are not each other's inverse.

    >>> native = Coordinates(jnp.ones((2, 1)), jnp.ones((3, 1)))
    >>> linear_gauge(native, [[4.0]], [[0.25]]).k.ravel().tolist()
    [0.25, 0.25, 0.25]
    """
    d = coordinates.q.shape[1]
    matrix, inverse = _shaped("matrix", matrix, (d, d)), _shaped("inverse", inverse, (d, d))
    off = concrete(jnp.abs(matrix @ inverse - jnp.eye(d, dtype=matrix.dtype)))
    size = concrete(jnp.abs(matrix) @ jnp.abs(inverse))
    if off is not None and size is not None and not (off <= INVERSE * max(1.0, size.max())).all():
        raise ValueError("inverse is not the inverse of matrix: pass G and numpy.linalg.inv(G).")
    return Coordinates(coordinates.q @ matrix, coordinates.k @ inverse.T, coordinates.log_weights)


def translation_gauge(coordinates: Coordinates, query_shift: ArrayLike, key_shift: ArrayLike) -> Coordinates:
    """q_i + c, k_j + c': adds <c, k_j> to column j, absorbed by its key weight, and row
    constants. Shifts have shape (d,)."""
    width = coordinates.q.shape[1:]
    query_shift = _shaped("query_shift", query_shift, width)
    key_shift = _shaped("key_shift", key_shift, width)
    return Coordinates(
        coordinates.q + query_shift[None, :],
        coordinates.k + key_shift[None, :],
        coordinates.log_weights - coordinates.k @ query_shift,
    )


def row_scalar_gauge(coordinates: Coordinates, row_scalars: ArrayLike) -> Coordinates:
    """Add a_i to the logits of row i through one more coordinate: q = (q, a), k = (k, 1)."""
    scalars = _shaped("row_scalars", row_scalars, coordinates.q.shape[:1])
    ones = jnp.ones((coordinates.k.shape[0], 1), coordinates.k.dtype)
    return Coordinates(
        jnp.concatenate([coordinates.q, scalars[:, None]], 1),
        jnp.concatenate([coordinates.k, ones], 1),
        coordinates.log_weights,
    )


def key_weight_gauge(coordinates: Coordinates, column_scalars: ArrayLike) -> Coordinates:
    """Move b_j from the key weights into one more coordinate: q = (q, 1), k = (k, b)."""
    scalars = _shaped("column_scalars", column_scalars, coordinates.k.shape[:1])
    ones = jnp.ones((coordinates.q.shape[0], 1), coordinates.q.dtype)
    return Coordinates(
        jnp.concatenate([coordinates.q, ones], 1),
        jnp.concatenate([coordinates.k, scalars[:, None]], 1),
        coordinates.log_weights - scalars,
    )


def _shaped(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = as_jax(name, value)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    _finite(name, array)
    return array


def _finite(name: str, array: Array) -> None:
    values = concrete(array)
    if values is not None and not np.isfinite(values).all():
        raise ValueError(f"{name} has NaN or infinite entries: drop or mask those rows first.")
