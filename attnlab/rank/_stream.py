"""Passes over attention in blocks of rows, on the device: what a search may do with a matrix it never holds.

Every pass is one compiled loop over blocks of shape (height, N). The rows of a block are spread over the
devices of ``lane_devices``, of this process or of several; keys, factors and sums over rows are on all of
them. Sums are float32 unless logits need float64; what the passes return is only searched with, never
believed.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from .._lanes import fetch, lane_devices, place
from ._factored import FactoredAttention, centred, logit_size

BLOCK = 2**22  # entries of the matrix held at a time
LARGEST_LOGIT = 2.0**12  # float32 resolves this to about 5e-4


class Stream(eqx.Module):
    """Attention on the device: queries in blocks (blocks, height, d), keys (N, d), column offsets (N,).

    ``seen`` is None, packed bits (blocks, height, ceil(N/8)), or the last visible key (blocks, height).
    Rows that pad the last block have ``real`` 0.
    """

    q: jax.Array
    k: jax.Array
    offset: jax.Array
    seen: jax.Array | None
    real: jax.Array
    count: int = eqx.field(static=True)

    @property
    def dtype(self) -> np.dtype:
        """Precision of the passes."""
        return self.q.dtype

    def blocks(self, rows: np.ndarray) -> jax.Array:
        """Host data per row (m, ...) as (blocks, height, ...) on the device, padded by its last row."""
        return _spread(_blocked(np.asarray(rows, self.dtype), self.q.shape[0], self.q.shape[1]))

    def shared(self, array: np.ndarray | float) -> jax.Array:
        """Host data on every device."""
        return _everywhere(np.asarray(array, self.dtype))

    def flat(self, blocks: jax.Array) -> np.ndarray:
        """The inverse of ``blocks``."""
        host = fetch(blocks)
        return host.reshape(-1, *host.shape[2:])[: self.count]


def stream(attention: FactoredAttention, dtype: type = np.float32, block: int = BLOCK) -> Stream:
    """Put the attention on the device, to be read ``block`` entries at a time.

    Raises:
        ValueError: logits too large for float32.
    """
    size = logit_size(attention)
    if dtype == np.float32 and not size <= LARGEST_LOGIT:
        raise ValueError(
            f"q and k give logits of up to {size:.3g}, too large for float32 logits (at most "
            f'{LARGEST_LOGIT:g}): scale q, k or beta down, or pass precision="float64".'
        )
    q, k, offset = centred(attention)
    (m, n), devices = attention.shape, len(lane_devices())
    height = min(max(block // n, 1), m)
    height = devices * math.ceil(height / devices)
    blocks = math.ceil(m / height)
    seen = None
    if isinstance(attention.mask, str):
        seen = np.minimum(np.arange(m) + n - m, n - 1).astype(np.int32)
    elif attention.mask is not None:
        seen = attention.mask
    real = np.arange(blocks * height).reshape(blocks, height) < m
    return Stream(
        _spread(_blocked((attention.beta * q).astype(dtype), blocks, height)),
        _everywhere(k.astype(dtype)),
        _everywhere(offset.astype(dtype)),
        None if seen is None else _spread(_blocked(seen, blocks, height)),
        _spread(real.astype(dtype)),
        m,
    )


def _blocked(rows: np.ndarray, blocks: int, height: int) -> np.ndarray:
    pad = blocks * height - len(rows)
    rows = np.concatenate([rows, np.repeat(rows[-1:], pad, axis=0)])
    return rows.reshape(blocks, height, *rows.shape[1:])


def _rows() -> Mesh:
    return Mesh(np.array(lane_devices()), "rows")


def _spread(blocks: np.ndarray) -> jax.Array:
    """Blocks on the devices, each with its share of the rows of every block."""
    return place(blocks, _rows(), PartitionSpec(None, "rows"))


def _everywhere(array: np.ndarray) -> jax.Array:
    return place(array, _rows(), PartitionSpec())


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def _softmax(q: jax.Array, seen: jax.Array | None, k: jax.Array, offset: jax.Array) -> jax.Array:
    z = _product(q, k.T) + offset[None, :]
    if seen is not None:
        if seen.ndim == 1:
            visible = jnp.arange(len(k), dtype=seen.dtype)[None, :] <= seen[:, None]
        else:
            visible = jnp.unpackbits(seen, axis=1, count=len(k)).astype(bool)
        z = jnp.where(visible, z, -jnp.inf)
    return jax.nn.softmax(z, axis=1)


@eqx.filter_jit
def _some_rows(data: Stream, index: jax.Array) -> jax.Array:
    pick = lambda x: x.reshape(-1, *x.shape[2:])[index]
    return _softmax(pick(data.q), None if data.seen is None else pick(data.seen), data.k, data.offset)


def some_rows(data: Stream, index: np.ndarray) -> np.ndarray:
    """(len(index), N) rows of the matrix, on the host."""
    return fetch(_some_rows(data, _everywhere(index)))


@eqx.filter_jit
def image(data: Stream, basis: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A B for orthonormal B (N, p), and the l1 distance of every row of A from A B B'."""

    def work(block):
        q, seen = block
        a = _softmax(q, seen, data.k, data.offset)
        coordinates = _product(a, basis)
        return coordinates, jnp.abs(a - _product(coordinates, basis.T)).sum(1)

    return jax.lax.map(work, (data.q, data.seen))


@eqx.filter_jit
def times(data: Stream, matrix: jax.Array) -> jax.Array:
    """A X for X (N, s), in blocks."""
    work = lambda block: _product(_softmax(block[0], block[1], data.k, data.offset), matrix)
    return jax.lax.map(work, (data.q, data.seen))


@eqx.filter_jit
def row_errors(data: Stream, left: jax.Array, right: jax.Array) -> jax.Array:
    """(blocks, height) l1 errors of the rows of U W; 0 for padding."""

    def work(block):
        q, seen, real, u = block
        return real * jnp.abs(_softmax(q, seen, data.k, data.offset) - _product(u, right)).sum(1)

    return jax.lax.map(work, (data.q, data.seen, data.real, left))


class Iterate(eqx.Module):
    """Factors U (blocks, height, K), W (K, N) and their velocities; columns beyond the rank are zero."""

    left: jax.Array
    right: jax.Array
    left_speed: jax.Array
    right_speed: jax.Array


@eqx.filter_jit
def sweep(
    data: Stream,
    now: Iterate,
    peak: jax.Array,
    heat: jax.Array,
    width: jax.Array,
    metric: jax.Array,
    step: jax.Array,
    momentum: jax.Array,
) -> tuple[jax.Array, Iterate, jax.Array, jax.Array]:
    """One pass of the l1 descent: errors, the moved U, and what the step of W needs.

    Every |e| of row i is rounded to sqrt(e^2 + mu_i^2), mu_i = ``width`` times its mean |e|, and that is
    majorised by a parabola of curvature 1 / mu_i: the step of U_i is mu_i S_i W' (W W')^-1 with
    S = e / sqrt(e^2 + mu^2).

    Arguments:
        peak, heat: a row of error e has weight exp((e / peak - 1) / heat) in the step of W.
        metric: (K, K) inverse of W W' on the active components.

    Returns:
        Row errors of U W as given; the iterate with U moved; U' D S (K, N) and U' D / mu U (K, K).
    """

    def work(total, block):
        q, seen, real, u, speed = block
        e = _softmax(q, seen, data.k, data.offset) - _product(u, now.right)
        error = jnp.abs(e).sum(1)
        p = real * jnp.exp(jnp.minimum((error / peak - 1) / heat, 40.0))
        mu = jnp.maximum(width * error / e.shape[1], jnp.finfo(e.dtype).tiny ** 0.25)[:, None]
        s = e * jax.lax.rsqrt(e * e + mu * mu)
        speed = momentum * speed + _product(mu * _product(s, now.right.T), metric)
        pull = total[0] + _product((p[:, None] * u).T, s)
        curvature = total[1] + _product((p[:, None] / mu * u).T, u)
        return (pull, curvature), (real * error, u + step * speed, speed)

    k = now.right.shape[0]
    zero = jnp.zeros_like(now.right), jnp.zeros((k, k), now.right.dtype)
    inputs = data.q, data.seen, data.real, now.left, now.left_speed
    (pull, curvature), (errors, left, speed) = jax.lax.scan(work, zero, inputs)
    return errors, Iterate(left, now.right, speed, now.right_speed), pull, curvature


@eqx.filter_jit
def move_right(
    now: Iterate, pull: jax.Array, metric: jax.Array, step: jax.Array, momentum: jax.Array
) -> Iterate:
    """The step of W, preconditioned by the inverse curvature (K, K)."""
    speed = momentum * now.right_speed + _product(metric, pull)
    return Iterate(now.left, now.right + step * speed, now.left_speed, speed)


@eqx.filter_jit
def at_rest(left: jax.Array, right: jax.Array) -> Iterate:
    """U and W with no velocity."""
    return Iterate(left, right, jnp.zeros_like(left), jnp.zeros_like(right))


@eqx.filter_jit
def turned(now: Iterate, left: jax.Array, right: jax.Array) -> Iterate:
    """U T, S W for (K, K) T and S, at rest."""
    return at_rest(_product(now.left, left), _product(right, now.right))


@eqx.filter_jit
def gram(matrix: jax.Array) -> jax.Array:
    """X X'."""
    return _product(matrix, matrix.T)


@eqx.filter_jit
def weighted_gram(left: jax.Array, weights: jax.Array) -> jax.Array:
    """U' D U over all blocks."""
    flat = left.reshape(-1, left.shape[-1])
    return _product((weights.reshape(-1, 1) * flat).T, flat)
