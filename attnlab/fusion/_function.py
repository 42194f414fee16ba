"""Targets and heads as plain NumPy float64 functions of many queries, with the input checks."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..heads import Head, HeadSum
from ._box import Box

Target = Head | HeadSum | Callable[[Any], Any]


class Function:
    """A target evaluated at (n, d) float64 queries: (n, p).

    Attributes:
        heads: the heads of the sum as float64 arrays (keys, values (n, p), log-weights), or ``None``
            for a callable, about which nothing can be proved.
        scalar: whether a value is a number rather than a vector.

    Raises:
        ValueError: not a Head, HeadSum or callable; another dimension than the box; values that are
            NaN, infinite or of a wrong shape.
    """

    def __init__(self, target: Target, box: Box, name: str = "target"):
        if not isinstance(box, Box):
            raise ValueError(f"box must be an attnlab.fusion.Box, got {type(box).__name__}.")
        self.box, self.name, self.target = box, name, target
        self.heads = None
        if isinstance(target, Head | HeadSum):
            heads = target.heads if isinstance(target, HeadSum) else (target,)
            if heads[0].dim != box.dim:
                raise ValueError(f"{name} takes queries of dimension {heads[0].dim} but box has {box.dim}.")
            self.heads = [head_arrays(h) for h in heads]
            self.scalar = heads[0].value_shape == ()
            self.width = self.heads[0][1].shape[1]
        elif callable(target):
            self._batched = jax.jit(jax.vmap(target))
            try:
                shape = jax.eval_shape(target, jnp.zeros(box.dim)).shape
            except Exception as error:
                raise ValueError(
                    f"{name} failed on a query of shape ({box.dim},): {error}. It must map (d,) to a number "
                    "or to (p,), using jax.numpy."
                ) from error
            if len(shape) > 1 or 0 in shape:
                raise ValueError(f"{name} returns shape {shape}; it must return a number or shape (p,).")
            self.scalar, self.width = shape == (), (shape or (1,))[0]
        else:
            raise ValueError(f"{name} must be a Head, a HeadSum or a callable, got {type(target).__name__}.")

    def __call__(self, q: np.ndarray) -> np.ndarray:
        if self.heads is not None:
            return sum(head_values(*h, q) for h in self.heads)  # pyright: ignore[reportReturnType]
        # Padded to a power of two, so that searches with a growing pool of points do not recompile.
        padded = np.concatenate([q, np.repeat(q[:1], 2 ** (len(q) - 1).bit_length() - len(q), 0)])
        values = np.asarray(self._batched(jnp.asarray(padded, jnp.result_type(float))), np.float64)
        values = values.reshape(len(padded), self.width)[: len(q)]
        if not np.isfinite(values).all():
            where = q[np.flatnonzero(~np.isfinite(values).all(1))[0]]
            raise ValueError(f"{self.name} returns NaN or infinity, for instance at q = {where.tolist()}.")
        return values


def head_arrays(head: Head) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys (n, d), values (n, p), log-weights (n,) in float64, absent atoms dropped."""
    keys, values, logs = (np.asarray(x, np.float64) for x in (head.keys, head.values, head.log_weights))
    there = logs > -np.inf
    return keys[there], values.reshape(len(values), -1)[there], logs[there]


def softmax(keys: np.ndarray, logs: np.ndarray, q: np.ndarray) -> np.ndarray:
    """(n, m) weights of the atoms at queries (n, d)."""
    z = q @ keys.T + logs
    z -= z.max(1, keepdims=True)
    np.exp(z, out=z)
    return z / z.sum(1, keepdims=True)


def head_values(keys: np.ndarray, values: np.ndarray, logs: np.ndarray, q: np.ndarray) -> np.ndarray:
    """(n, p) values of one head at queries (n, d)."""
    return softmax(keys, logs, q) @ values


def worst_points(
    size: Callable[[np.ndarray], np.ndarray], box: Box, seeds: np.ndarray, steps: int = 24
) -> np.ndarray:
    """Batched ascent of ``size`` ((n, d) -> (n,)) from ``seeds`` inside the box: (n, d).

    A compass search with step halving: every seed tries all 2d directions at once, so it needs no
    gradient and does not mind the kinks of an absolute value.
    """
    if not len(seeds):
        return seeds
    d = box.dim
    moves = np.concatenate([np.eye(d), -np.eye(d)])
    points, best = seeds.copy(), size(seeds)
    step = np.full(len(points), box.radius / 16)
    for _ in range(steps):
        trial = points[:, None, :] + step[:, None, None] * moves
        trial = np.clip(trial, -box.radius, box.radius)
        value = size(trial.reshape(-1, d)).reshape(len(points), 2 * d)
        pick = value.argmax(1)
        rows = np.arange(len(points))
        better = value[rows, pick] > best
        points[better] = trial[rows, pick][better]
        best = np.where(better, value[rows, pick], best)
        step = np.where(better, step, step / 2)
    return points


def largest_rows(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the ``count`` largest entries, largest first."""
    count = min(count, len(values))
    part = np.argpartition(-values, count - 1)[:count]
    return part[np.argsort(-values[part])]


def flat_subject(
    heads: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], prefix: str
) -> dict[str, np.ndarray]:
    """Heads one after the other, as the arrays of a certificate's subject."""
    keys, values, logs = (np.concatenate(x) for x in zip(*heads, strict=True))
    return {prefix + "keys": keys, prefix + "values": values, prefix + "log_weights": logs}
