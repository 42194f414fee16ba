"""The one descent loop behind every rank search: masked lanes, annealed smoothing, best iterate kept.

A search is a small static object (``Problem``) that evaluates one lane. The loop runs Adam on all
lanes at once (``attnlab._lanes``); rank, start and step size are data, so one compilation serves every
rank, restart and effort of a problem shape. Nothing in it factorises a matrix.
"""

import abc
from enum import IntEnum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._lanes import run_lanes


class LaneCode(IntEnum):
    """How a lane ended. The certificate, not the code, decides what its result proves."""

    IMPROVED = 0  # ended with a better value than its start
    STALLED = 1  # finite throughout, but never better than the start
    DIVERGED = 2  # met a non-finite value; went on from its best iterate with half the step size


class Smoothing(eqx.Module):
    """Annealed smoothing: ``width`` rounds |x| relative to its mean, ``heat`` softens the maximum."""

    width: jax.Array
    heat: jax.Array


class Problem(eqx.Module):
    """One lane of a search: what to minimise, and state carried from step to step."""

    @abc.abstractmethod
    def evaluate(
        self, params: Any, state: Any, matrix: jax.Array, mask: jax.Array, smoothing: Smoothing
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Any]]:
        """The smooth objective, and (exact objective, whether it can be trusted, next state)."""


class Lanes(eqx.Module):
    """What differs from lane to lane; every array has a leading lane axis outside ``vmap``."""

    params: Any
    state: Any
    scales: Any
    mask: jax.Array | np.ndarray
    rate: jax.Array | np.ndarray


class Descent(eqx.Module):
    """Best parameters, exact value and code of every lane; steps taken by each."""

    params: Any
    value: np.ndarray
    code: np.ndarray
    steps: int


def smooth_max_row_sum(matrix: jax.Array, smoothing: Smoothing) -> tuple[jax.Array, jax.Array]:
    """A smooth version of log max_i sum_j |x_ij|, and the exact (unsmoothed) maximum."""
    absolute = jnp.abs(matrix).sum(1)
    largest = jax.lax.stop_gradient(absolute.max())
    mu = smoothing.width * largest / matrix.shape[1] + jnp.finfo(matrix.dtype).tiny ** 0.5
    rows = jnp.log(jnp.sqrt(matrix * matrix + mu * mu).sum(1))
    return smoothing.heat * jax.scipy.special.logsumexp(rows / smoothing.heat), absolute.max()


def descend(
    problem: Problem,
    matrix: np.ndarray,
    params: Any,
    state: Any,
    scales: Any,
    mask: np.ndarray,
    rates: np.ndarray,
    steps: int,
    dtype: Any,
) -> Descent:
    """Run every lane for ``steps`` steps.

    Arguments:
        problem: the search.
        matrix: (m, N) data shared by all lanes.
        params: pytree of arrays with a leading lane axis; masked entries must start at 0.
        state: pytree with a leading lane axis.
        mask: (lanes, width) 1.0 for the components a lane uses.
        scales: pytree like ``params`` of (lanes,): the size of an entry of each parameter array.
        rates: (lanes,) step size, relative to ``scales``.
        steps: number of steps.
        dtype: float32 or float64, the precision of the search.
    """
    lanes = Lanes(params, state, scales, mask, rates)
    found = run_lanes(_descend, lanes, matrix, np.int32(steps), problem, dtype=dtype)
    best, value, first, diverged = found
    code = np.where(value < first, LaneCode.IMPROVED, LaneCode.STALLED)
    return Descent(best, value, np.where(diverged, LaneCode.DIVERGED, code), steps)


def _descend(lane: Lanes, matrix: jax.Array, steps: jax.Array, problem: Problem) -> Any:
    return _lane(problem, matrix, lane, steps)


def _lane(problem, matrix, lane, steps):
    params, state, mask, dtype = lane.params, lane.state, lane.mask, matrix.dtype
    adam = optax.scale_by_adam(b1=0.9, b2=0.99)
    gradient = jax.value_and_grad(problem.evaluate, has_aux=True)

    def body(i, carry):
        params, state, memory, best, falls = carry
        progress = jnp.asarray(i, dtype) / jnp.asarray(steps, dtype)
        smoothing = Smoothing(width=10.0 ** (-0.5 - 3 * progress), heat=10.0 ** (-1 - 2 * progress))
        (smooth, (exact, trusted, state)), grads = gradient(params, state, matrix, mask, smoothing)
        finite = jnp.isfinite(smooth) & jnp.isfinite(exact)
        better = finite & trusted & (exact < best[0])
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), (exact, params, state), best)
        updates, memory = adam.update(grads, memory)
        step = (
            lane.rate
            * 0.5**falls
            * jnp.minimum(1.0, 2 * (1 - progress))
            * jnp.minimum(1.0, (jnp.asarray(i, dtype) + 1) / 50)
        )
        moved = jax.tree.map(lambda p, u, s: p - step * s * u, params, updates, lane.scales)
        # A lane that met a non-finite number goes back to its best iterate, slower and with a fresh memory.
        back = lambda new, old: jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)
        params, state = back((moved, state), best[1:])
        return params, state, back(memory, adam.init(params)), best, falls + ~finite

    nothing = jnp.asarray(jnp.inf, dtype)
    carry = (params, state, adam.init(params), (nothing, params, state), jnp.asarray(0, dtype))
    first = problem.evaluate(
        params, state, matrix, mask, Smoothing(jnp.asarray(0.1, dtype), jnp.asarray(0.1, dtype))
    )[1][0]
    *_, best, falls = jax.lax.fori_loop(0, steps, body, carry)
    return best[1], best[0], first, falls > 0
