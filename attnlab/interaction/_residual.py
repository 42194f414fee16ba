"""What an interaction that is left out can cost: the residual q(E) and tau."""

import math
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import logsumexp
from jax.typing import ArrayLike

from ._intrinsic import _matrix

MAX_SWEEPS = 1000  # policy iterations; about ten are usual


def residual(error: ArrayLike, gauge: Literal["optimal", "none"] = "optimal") -> float:
    """q(E) = min over column gauges b of max_i osc(E_i - b)/2, osc(x) = max x - min x ([I]).

    Arguments:
        error: shape (m, N), finite; what the retained interaction leaves out of log A. Unit: nats.
        gauge: ``"optimal"`` minimises over b; ``"none"`` takes b = 0 (cheap, at most twice larger
            for a doubly centred E).

    Returns:
        The value attained by the gauge found, in float64; the gauge is ``column_gauge(error)``.

    >>> residual([[1.0, 0.0], [1.0, 0.0]]), residual([[1.0, 0.0], [1.0, 0.0]], gauge="none")
    (0.0, 0.5)
    """
    if gauge not in ("optimal", "none"):
        raise ValueError(f'gauge must be "optimal" or "none", got {gauge!r}.')
    e = _matrix(error, "error")
    if gauge == "optimal":
        e = e - column_gauge(e)
    return float(np.ptp(e, axis=1).max() / 2)


def column_gauge(error: ArrayLike) -> np.ndarray:
    """The column constants b of shape (N,) that minimise max_i osc(E_i - b).

    osc(E_i - b) <= w for all i means b_j - b_k >= D_jk - w with D_jk = max_i (E_ij - E_ik). By
    linear programming duality that is solvable exactly when w is at least the largest mean weight
    of a cycle of D, and b is then an eigenvector of D in max-plus algebra; Howard's policy
    iteration finds both (Cochet-Terrasson et al., "Numerical computation of spectral elements in
    max-plus algebra", 1998).
    """
    e = _matrix(error, "error")
    weights = np.full((e.shape[1], e.shape[1]), -np.inf)
    for row in e:
        np.maximum(weights, row[:, None] - row[None, :], out=weights)
    policy = weights.argmax(1)
    scale = 1e-12 * (1 + np.abs(weights).max())
    value = np.zeros(len(weights))
    for _ in range(MAX_SWEEPS):
        mean, cycle = _heaviest_cycle(weights, policy)
        value = _values(weights, policy, mean, cycle)
        candidate = weights + value[None, :] - mean
        better = candidate.max(1)
        improve = better > value + scale
        if not improve.any():
            break
        policy = np.where(improve, candidate.argmax(1), policy)
    return value - value.mean()


def tau(q: ArrayLike) -> Array:
    """tau = 2 tanh(q / 2): the l1 distance of two probability rows whose log-ratio has osc 2 q.

    Sharp: p = (1, e^q)/(1 + e^q) against its mirror image is at exactly this distance. Works on
    arrays, differentiable.

    >>> float(tau(0.0))
    0.0
    """
    return 2 * jnp.tanh(jnp.asarray(q) / 2)


def exact_tau(q: float) -> float:
    """``tau`` in float64 on the host, whatever the JAX precision."""
    return 2 * math.tanh(q / 2)


def smooth_residual(error: Array, gauge: Array, temperature: ArrayLike) -> Array:
    """A differentiable upper bound on max_i osc(E_i - gauge)/2, within temperature * log(m N^2)/2.

    Arguments:
        error: shape (m, N). gauge: shape (N,). temperature: positive scalar, in nats.
    """
    e = (error - gauge[None, :]) / temperature
    swing = logsumexp(e, axis=1) + logsumexp(-e, axis=1)
    return jnp.asarray(temperature) * logsumexp(swing) / 2


def _heaviest_cycle(weights: np.ndarray, policy: np.ndarray) -> tuple[float, list[int]]:
    """The cycle of the graph j -> policy[j] with the largest mean weight."""
    best, best_cycle = -np.inf, [0]
    seen = np.full(len(policy), -1)
    for start in range(len(policy)):
        node, path = start, []
        while seen[node] < 0:
            seen[node] = start
            path.append(node)
            node = int(policy[node])
        if seen[node] == start:
            cycle = path[path.index(node) :]
            mean = float(np.mean([weights[j, policy[j]] for j in cycle]))
            if mean > best:
                best, best_cycle = mean, cycle
    return best, best_cycle


def _values(weights: np.ndarray, policy: np.ndarray, mean: float, cycle: list[int]) -> np.ndarray:
    """Relative values of the policy; nodes that do not lead to the cycle are sent there
    directly."""
    root = cycle[0]
    value = np.full(len(policy), np.nan)
    value[root] = 0.0
    known = [root]
    arrivals: list[list[int]] = [[] for _ in policy]
    for node, successor in enumerate(policy):
        arrivals[successor].append(node)
    for node in known:
        for before in arrivals[node]:
            if np.isnan(value[before]):
                value[before] = weights[before, node] - mean + value[node]
                known.append(before)
    lost = np.isnan(value)
    policy[lost] = root
    value[lost] = weights[lost, root] - mean
    return value
