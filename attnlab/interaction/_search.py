"""The inner search of the profile: retained interactions with a small kappa / (eps - tau)^2.

One lane is one (rank, eps, start). It moves the factors X, Y and the column gauge b by Adam on

    log max_i |x_i| + log max_j |y_j| - 2 log(eps - tau(C - X Y' - b)),

with maxima smoothed and annealed. Moving X and Y covers T, its gauge and its translations together.
Where eps - tau is not safely positive the logarithm is continued linearly, so that infeasible lanes
first look for a small tau. Everything here is float32 and proves nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.nn import logsumexp

from .._lanes import run_lanes
from ._residual import smooth_residual, tau

MARGIN = 0.05  # share of eps at which the logarithm turns linear
HOT, COLD = 0.2, 0.001  # smoothing of oscillations, in nats, annealed geometrically
RATE, LAST_RATE = 0.03, 0.03  # Adam step for factors in units of their own scale; its last share (cosine)


def search(
    interaction: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    gauge: np.ndarray,
    mask: np.ndarray,
    eps: np.ndarray,
    *,
    steps: int,
    dtype: Any = np.float32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Improve all lanes.

    Arguments:
        interaction: C, shape (m, N). x, y: shape (lanes, m, R), (lanes, N, R).
        gauge: shape (lanes, N). mask: shape (lanes, R), 1 for the columns a lane may use.
        eps: shape (lanes,).
        steps: Adam steps; data, not a shape.
        dtype: precision of the search.

    Returns:
        The improved x, y, gauge.
    """
    return run_lanes(_search_lane, (x, y, gauge, mask, eps), interaction, np.int32(steps), dtype=dtype)


def _search_lane(
    lane: tuple[Array, Array, Array, Array, Array], interaction: Array, steps: Array
) -> tuple[Array, Array, Array]:
    x, y, gauge, mask, eps = lane
    adam = optax.scale_by_adam(b1=0.9, b2=0.99)
    # Adam moves every entry by about the rate; measure factors in units of their own size.
    unit_x = jnp.sqrt(jnp.mean(x**2)) + 1e-6
    unit_y = jnp.sqrt(jnp.mean(y**2)) + 1e-6
    scale_x, scale_y = unit_x * mask[None, :], unit_y * mask[None, :]
    start = (x / unit_x, y / unit_y, gauge)

    def step(index: Any, carry: tuple) -> tuple:
        parameters, state = carry
        progress = jnp.asarray(index, x.dtype) / jnp.asarray(steps, x.dtype)
        temperature = HOT * (COLD / HOT) ** progress
        rate = RATE * (LAST_RATE + (1 - LAST_RATE) * (1 + jnp.cos(jnp.pi * progress)) / 2)

        def loss(parts: tuple[Array, Array, Array]) -> Array:
            return objective(
                interaction,
                parts[0] * scale_x,
                parts[1] * scale_y,
                parts[2],
                eps,
                temperature,
            )

        update, state = adam.update(jax.grad(loss)(parameters), state)
        return jax.tree.map(lambda p, u: p - rate * u, parameters, update), state

    last, _ = jax.lax.fori_loop(0, steps, step, (start, adam.init(start)))
    return last[0] * scale_x, last[1] * scale_y, last[2]


def objective(interaction: Array, x: Array, y: Array, gauge: Array, eps: Array, temperature: Array) -> Array:
    """The smoothed objective of one lane; above the exact one by at most the smoothing."""
    error = interaction - jnp.matmul(x, y.T, precision=jax.lax.Precision.HIGHEST)
    slack = eps - tau(smooth_residual(error, gauge, temperature))
    return _log_radius(x, temperature) + _log_radius(y, temperature) - 2 * _log(slack, MARGIN * eps)


def _log_radius(x: Array, temperature: Array) -> Array:
    """log max_i |x_i|, smoothed at the given relative temperature."""
    squares = jnp.log(jnp.sum(x**2, axis=1) + 1e-12) / 2
    return temperature * logsumexp(squares / temperature)


def _log(value: Array, least: Array) -> Array:
    """log, continued by its tangent below ``least``."""
    safe = jnp.maximum(value, least)
    return jnp.log(safe) + (value - safe) / least
