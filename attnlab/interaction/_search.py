"""The inner search of the profile: retained interactions with a small kappa / (eps - tau)^2.

One lane is one (rank, eps, start). It moves the factors X, Y and the column gauge b by Adam on

    log max_i |x_i| + log max_j |y_j| - 2 log(eps - tau(C - X Y' - b)),

with maxima smoothed and annealed. Moving X and Y covers T, its gauge and its translations together.
Where eps - tau is not safely positive the logarithm is continued linearly, so that infeasible lanes
first look for a small tau. Everything here is float32 and proves nothing.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.nn import logsumexp

from ._residual import smooth_residual, tau

MARGIN = 0.05  # share of eps at which the logarithm turns linear
HOT, COLD = 0.2, 0.001  # smoothing of oscillations, in nats, annealed geometrically
RATE = 0.03  # Adam step for factors in units of their own scale, decayed to 3%


@partial(jax.jit, static_argnames="steps")
def search(
    interaction: Array, x: Array, y: Array, gauge: Array, mask: Array, eps: Array, *, steps: int
) -> tuple[Array, Array, Array]:
    """Improve all lanes.

    Arguments:
        interaction: C, shape (m, N). x, y: shape (lanes, m, R), (lanes, N, R).
        gauge: shape (lanes, N). mask: shape (lanes, R), 1 for the columns a lane may use.
        eps: shape (lanes,).

    Returns:
        The improved x, y, gauge.
    """
    return jax.vmap(partial(_search_lane, interaction, steps))(x, y, gauge, mask, eps)


def _search_lane(
    interaction: Array, steps: int, x: Array, y: Array, gauge: Array, mask: Array, eps: Array
) -> tuple[Array, Array, Array]:
    rate = optax.cosine_decay_schedule(RATE, steps, alpha=0.03)
    adam = optax.adam(rate, b1=0.9, b2=0.99)
    # Adam moves every entry by about the rate; measure factors in units of their own size.
    unit_x = jnp.sqrt(jnp.mean(x**2)) + 1e-6
    unit_y = jnp.sqrt(jnp.mean(y**2)) + 1e-6
    scale_x, scale_y = unit_x * mask[None, :], unit_y * mask[None, :]
    start = (x / unit_x, y / unit_y, gauge)

    def step(carry: tuple, index: Array) -> tuple[tuple, None]:
        parameters, state = carry
        temperature = HOT * (COLD / HOT) ** (index / steps)

        def loss(parts: tuple[Array, Array, Array]) -> Array:
            return objective(
                interaction,
                parts[0] * scale_x,
                parts[1] * scale_y,
                parts[2],
                eps,
                temperature,
            )

        gradient = jax.grad(loss)(parameters)
        update, state = adam.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, update), state), None

    (last, _), _ = jax.lax.scan(step, (start, adam.init(start)), jnp.arange(steps, dtype=x.dtype))
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
