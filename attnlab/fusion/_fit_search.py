"""Masked-lane search for heads close to given values at given points.

A lane is one start of one atom count, padded to the largest count. All lanes run the same
Levenberg-Marquardt iteration on the p-norm of the error, p rising from 2 to 32, under ``vmap``: one
compilation per (points, dimension, largest count, width of values). The normal equations are solved
by elimination written in plain array operations (no batched LAPACK call), so the search runs on any
device; float32 is enough, because the polish works in float64 on the host.

Memory on the device: lanes run in chunks of L (``attnlab._lanes``: 4 on a CPU, at most 64 on an accelerator),
and a chunk holds about three Jacobians per lane, 3 L n p m (d + 1 + p) numbers, however many starts there
are. For d = 3, m = 8, n = 1,331 points in float32 that is 2.6 MB for 4 lanes and 41 MB for 64; XLA itself
reports 2.7 and 42 MB (3.0 to 3.3 Jacobians for d = 2, 3, 4; ``benchmarks/fit.py`` prints it).
"""

from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._lanes import run_lanes
from ..heads import softmax_weights

POWERS = (2.0, 4.0, 8.0, 16.0, 32.0)


class LaneCode(IntEnum):
    """How a lane ended."""

    IMPROVED = 0  # better than its start
    STALLED = 1  # never better than its start
    DIVERGED = 2  # met a non-finite number; its result is not used


class Lanes(NamedTuple):
    """Parameters of many heads: keys (L, m, d), log-weights (L, m), values (L, m, p), mask (L, m)."""

    keys: np.ndarray
    logs: np.ndarray
    values: np.ndarray
    mask: np.ndarray

    def head(self, lane: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys, values, log-weights of the atoms one lane uses, in float64."""
        there = self.mask[lane]
        rows = (self.keys[lane], self.values[lane], self.logs[lane])
        return tuple(np.asarray(x, np.float64)[there] for x in rows)  # pyright: ignore[reportReturnType]

    def take(self, rows: np.ndarray) -> "Lanes":
        """Some of the lanes."""
        return Lanes(*(x[rows] for x in self))


class Found(NamedTuple):
    """Best head of every lane, its largest error at the points, and its code."""

    lanes: Lanes
    error: np.ndarray
    code: np.ndarray


def search(
    lanes: Lanes, points: np.ndarray, wanted: np.ndarray, steps: int = 60, dtype: Any = jnp.float32
) -> Found:
    """Run all lanes.

    Arguments:
        lanes: starts; values of the start are replaced by the best ones for its keys.
        points: (n, d); wanted: (n, p), the values to approximate there.
        steps: Levenberg-Marquardt steps; data, not a shape.
        dtype: float32 is enough (the polish is in float64); float64 needs JAX's x64 mode.
    """
    starts = (lanes.keys, lanes.logs, lanes.values, lanes.mask)
    out = run_lanes(_lane_of, starts, points, wanted, np.int32(steps), dtype=dtype)
    keys, logs, values, error, first, bad = out
    code = np.where(error < first, LaneCode.IMPROVED, LaneCode.STALLED)
    code = np.where(bad | ~np.isfinite(error), LaneCode.DIVERGED, code)
    return Found(
        Lanes(keys, logs, values, lanes.mask), np.where(code == LaneCode.DIVERGED, np.nan, error), code
    )


def best_values(keys: Array, logs: Array, mask: Array, points: Array, wanted: Array) -> Array:
    """Least-squares values (m, p) for given keys and log-weights; differentiable, with a tiny ridge.

    Arguments:
        keys: (m, d); logs: (m,); mask: (m,) booleans; points: (n, d); wanted: (n, p).
    """
    w = _weights(keys, logs, mask, points)
    gram = w.T @ w
    ridge = 10 * jnp.finfo(gram.dtype).eps * jnp.trace(gram)
    return _solve(gram + ridge * jnp.eye(len(gram), dtype=gram.dtype), w.T @ wanted)


def residual(params: tuple[Array, Array, Array], mask: Array, points: Array, wanted: Array) -> Array:
    """(n, p) error of one head at the points."""
    keys, logs, values = params
    w = _weights(keys, logs, mask, points)
    return w @ values - wanted


def residual_and_jacobian(
    params: tuple[Array, Array, Array], mask: Array, points: Array, wanted: Array
) -> tuple[Array, Array]:
    """(n, p) error and its (n p, m (d + 1 + p)) derivative by keys, log-weights and values."""
    keys, logs, values = params
    n, d = points.shape
    m, p = values.shape
    w = _weights(keys, logs, mask, points)
    f = w @ values
    by_logit = w[:, None, :] * (values.T[None] - f[:, :, None])  # (n, p, m)
    by_key = by_logit[..., None] * points[:, None, None, :]
    by_value = w[:, None, :, None] * jnp.eye(p, dtype=w.dtype)[None, :, None, :]
    jacobian = jnp.concatenate([by_key, by_logit[..., None], jnp.broadcast_to(by_value, (n, p, m, p))], -1)
    return f - wanted, jacobian.reshape(n * p, m * (d + 1 + p))


def _weights(keys: Array, logs: Array, mask: Array, points: Array) -> Array:
    """(n, m) softmax weights of one head's atoms at the points."""
    return softmax_weights(points @ keys.T + jnp.where(mask, logs, 0)[None], mask[None])


def _solve(matrix: Array, right: Array) -> Array:
    """Solve a positive definite system (n, n) x = (n, k) by elimination without pivoting."""

    def eliminate(k, table):
        row = table[k] / table[k, k]
        column = table[:, k].at[k].set(0)
        return (table - column[:, None] * row[None, :]).at[k].set(row)

    n = len(matrix)
    return jax.lax.fori_loop(0, n, eliminate, jnp.concatenate([matrix, right], 1))[:, n:]


def _lane_of(start: tuple[Array, ...], points: Array, wanted: Array, steps: Array) -> tuple[Array, ...]:
    keys, logs, values, mask = start
    return _lane(keys, logs, values, mask, points, wanted, steps)


def _norm(error: Array, power: Array) -> Array:
    size = jnp.abs(error)
    top = jnp.maximum(size.max(), jnp.finfo(error.dtype).tiny)
    return top * jnp.mean((size / top) ** power) ** (1 / power)


def _lane(keys, logs, values, mask, points, wanted, steps):
    dtype = points.dtype
    values = jnp.where(mask[:, None], best_values(keys, logs, mask, points, wanted), 0)
    start = (keys, logs, values)
    powers = jnp.asarray(POWERS, dtype)
    smallest = jnp.asarray(100 * jnp.finfo(dtype).eps, dtype)
    first = jnp.abs(residual(start, mask, points, wanted)).max()

    def body(i, carry):
        params, damping, best, bad = carry
        power = powers[jnp.minimum(len(POWERS) * i // steps, len(POWERS) - 1)]
        error, jacobian = residual_and_jacobian(params, mask, points, wanted)
        r = error.reshape(-1)
        weight = (jnp.abs(r) / jnp.maximum(jnp.abs(r).max(), jnp.finfo(dtype).tiny)) ** (power - 2)
        weighted = jacobian * weight[:, None]
        normal, slope = weighted.T @ jacobian, weighted.T @ r
        scale = jnp.sqrt(jnp.diagonal(normal))
        scale = jnp.where(scale > 1e-6 * scale.max() + jnp.finfo(dtype).tiny, scale, scale.max() + 1)
        system = normal / scale[:, None] / scale[None, :]
        system = system + damping * jnp.eye(len(system), dtype=dtype)
        step = _solve(system, (slope / scale)[:, None])[:, 0] / scale / (power - 1)
        step = step.reshape(len(mask), -1) * mask[:, None]
        d = points.shape[1]
        trial = (params[0] - step[:, :d], params[1] - step[:, d], params[2] - step[:, d + 1 :])
        moved = residual(trial, mask, points, wanted)
        after, before = _norm(moved, power), _norm(error, power)
        finite = jnp.isfinite(after) & jnp.isfinite(before)
        accept = finite & (after < before)
        params = jax.tree.map(lambda a, b: jnp.where(accept, a, b), trial, params)
        damping = jnp.clip(jnp.where(accept, damping * 0.25, damping * 6), smallest, 1e4)
        top = jnp.abs(moved).max()
        better = accept & (top < best[0])
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), (top, params), best)
        return params, damping, best, bad | ~jnp.isfinite(before)

    carry = (start, jnp.asarray(0.1, dtype), (first, start), jnp.asarray(False))
    _, _, (top, params), bad = jax.lax.fori_loop(0, steps, body, carry)
    return *params, top, first, bad
