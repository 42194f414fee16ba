"""Coordinates of a head and the gauge transformations that leave its attention alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


class Coordinates(eqx.Module):
    """Native coordinates of a head: logits = q k' + log_weights (no 1/sqrt(d): put it into q).

    Attributes:
        q: shape (m, d). k: shape (N, d). log_weights: shape (N,), the key weights.
    """

    q: Array
    k: Array
    log_weights: Array

    def __init__(self, q: ArrayLike, k: ArrayLike, log_weights: ArrayLike | None = None):
        self.q, self.k = jnp.asarray(q), jnp.asarray(k)
        if self.q.ndim != 2 or self.k.ndim != 2 or self.q.shape[1] != self.k.shape[1]:
            raise ValueError(
                f"q and k must be matrices of one width, got shapes {self.q.shape} and {self.k.shape}."
            )
        zeros = jnp.zeros(self.k.shape[0], self.k.dtype)
        self.log_weights = zeros if log_weights is None else jnp.asarray(log_weights)

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

    >>> import numpy as np
    >>> native = Coordinates(np.ones((2, 1)), np.ones((3, 1)))
    >>> linear_gauge(native, [[4.0]], [[0.25]]).k.ravel().tolist()
    [0.25, 0.25, 0.25]
    """
    matrix, inverse = jnp.asarray(matrix), jnp.asarray(inverse)
    return Coordinates(coordinates.q @ matrix, coordinates.k @ inverse.T, coordinates.log_weights)


def translation_gauge(coordinates: Coordinates, query_shift: ArrayLike, key_shift: ArrayLike) -> Coordinates:
    """q_i + c, k_j + c': adds <c, k_j> to column j, absorbed by its key weight, and row
    constants."""
    query_shift, key_shift = jnp.asarray(query_shift), jnp.asarray(key_shift)
    return Coordinates(
        coordinates.q + query_shift[None, :],
        coordinates.k + key_shift[None, :],
        coordinates.log_weights - coordinates.k @ query_shift,
    )


def row_scalar_gauge(coordinates: Coordinates, row_scalars: ArrayLike) -> Coordinates:
    """Add a_i to the logits of row i through one more coordinate: q = (q, a), k = (k, 1)."""
    scalars = jnp.asarray(row_scalars)
    ones = jnp.ones((coordinates.k.shape[0], 1), coordinates.k.dtype)
    return Coordinates(
        jnp.concatenate([coordinates.q, scalars[:, None]], 1),
        jnp.concatenate([coordinates.k, ones], 1),
        coordinates.log_weights,
    )


def key_weight_gauge(coordinates: Coordinates, column_scalars: ArrayLike) -> Coordinates:
    """Move b_j from the key weights into one more coordinate: q = (q, 1), k = (k, b)."""
    scalars = jnp.asarray(column_scalars)
    ones = jnp.ones((coordinates.q.shape[0], 1), coordinates.q.dtype)
    return Coordinates(
        jnp.concatenate([coordinates.q, ones], 1),
        jnp.concatenate([coordinates.k, scalars[:, None]], 1),
        coordinates.log_weights - scalars,
    )
