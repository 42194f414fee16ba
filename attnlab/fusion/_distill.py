"""Fewer atoms on a set of given queries: first-order fits in many dimensions, and a subset baseline.

``fit`` solves normal equations and suits a few dimensions. Learned heads have 32 to 128: here lanes of
Adam on the p-norm (p rising) do the search, on minibatches of the queries. Everything is judged on the
given points, by sampling. A part of them is held out: it decides which step of which lane is kept, and
whether least-squares values help, so that no head is kept for having learned the other points by heart.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import nnls

from .._lanes import run_lanes
from ..heads import HeadSum
from ._fit import check_count, seed_of
from ._fit_search import POWERS, Lanes, residual
from ._function import head_arrays, head_values, softmax
from ._polish import Atoms

DICTIONARY = 4096  # most atoms of the product that the baseline chooses from
HELD_OUT = 8  # every eighth query is not trained on
BATCH, CHECK = 1024, 25  # queries in a step; steps between looks at the held-out queries
RIDGES = (1e-8, 1e-4, 1e-2)  # relative, of the least-squares values that are tried at the end


@dataclass(frozen=True, eq=False)
class Distilled:
    """Heads found for each number of atoms; errors are the largest Euclidean distance on the points.

    Attributes:
        counts: numbers of atoms.
        heads: (keys, values, log-weights) of the best lane of each count.
        errors: its largest error on the points given, an estimate for any larger set.
        lane_errors: (counts, starts) of all lanes on held-out points; NaN where a lane diverged.
    """

    counts: list[int]
    heads: list[Atoms]
    errors: list[float]
    lane_errors: np.ndarray

    def error_on(self, queries: np.ndarray, wanted: np.ndarray) -> list[float]:
        """Largest Euclidean error of each head on other queries (n, d) with wanted values (n, p)."""
        return [distance(h, queries, wanted) for h in self.heads]


def distance(head: Atoms, queries: np.ndarray, wanted: np.ndarray) -> float:
    """Largest Euclidean distance of a head's values from the wanted ones."""
    return float(np.linalg.norm(head_values(*head, queries) - wanted, axis=1).max())


def distill(
    target: HeadSum,
    counts: list[int],
    queries: np.ndarray,
    *,
    key: Any = None,
    starts: int = 4,
    steps: int = 1000,
    rate: float = 0.02,
) -> Distilled:
    """Fit heads with few atoms to a sum of heads on given queries, by Adam in float32.

    Arguments:
        target: the sum of heads.
        counts: numbers of atoms, all lanes of one program.
        queries: (n, d), at least 16; every eighth is held out.
        key: PRNG key or int; starts: lanes per count; steps, rate: of Adam, rate relative to the keys.

    Raises:
        ValueError: queries of a wrong shape, too few or not finite, or a count below 1.
    """
    counts = [check_count("counts", m) for m in counts]
    queries = np.asarray(queries, np.float64)
    if queries.ndim != 2 or queries.shape[1] != target.dim or not np.isfinite(queries).all():
        raise ValueError(f"queries must be finite of shape (n, {target.dim}), got shape {queries.shape}.")
    if len(queries) < 2 * HELD_OUT:
        raise ValueError(f"queries has {len(queries)} rows; give at least {2 * HELD_OUT}.")
    heads = [head_arrays(h) for h in target.heads]
    wanted = np.asarray(sum(head_values(*h, queries) for h in heads))
    rng = np.random.default_rng(seed_of(key))
    order = rng.permutation(len(queries))
    held, rest = order[::HELD_OUT], np.delete(order, np.s_[::HELD_OUT])
    lanes = _lanes(heads, counts, queries[rest], wanted[rest], check_count("starts", starts), rng)
    scale = np.array([max(float(lanes.keys.std()), 1e-6), 1.0, max(float(np.ptp(wanted)), 1e-6)])
    train, check = ((queries[rows], wanted[rows]) for rows in (rest, held))
    found, errors = _descend(lanes, train, check, scale, rate, steps)
    table = errors.reshape(len(counts), starts)
    if np.isnan(table).all(1).any():
        raise ValueError("Every start diverged; lower rate, or scale the queries.")
    best = [i * starts + int(np.nanargmin(row)) for i, row in enumerate(table)]
    chosen = [_better_values(found.head(b), train, check) for b in best]
    return Distilled(counts, chosen, [distance(h, queries, wanted) for h in chosen], table)


def select_atoms(target: HeadSum, counts: list[int], queries: np.ndarray, *, key: Any = None) -> Distilled:
    """The baseline: a subset of the atoms of the plain product, chosen to match the attention mass.

    Orthogonal matching pursuit picks keys whose share of the softmax denominator adds up to 1 at all
    queries, with non-negative weights; values follow by least squares. This is the selection of Attention
    Matching (arXiv 2602.16284) applied to the product of the heads; of a product with more than 4,096
    atoms, the heaviest on average are considered.
    """
    heads = [head_arrays(h) for h in target.heads]
    queries = np.asarray(queries, np.float64)
    wanted = np.asarray(sum(head_values(*h, queries) for h in heads))
    keys, logs, mass = _dictionary(heads, queries)
    rest, picked, weights = np.ones(len(queries)), [], np.zeros(0)
    chosen: dict[int, Atoms] = {}
    size = np.sqrt((mass**2).sum(0)) + 1e-300
    for m in range(1, max(counts) + 1):
        gain = (rest @ mass) / size
        gain[picked] = -np.inf
        picked.append(int(gain.argmax()))
        weights, _ = nnls(mass[:, picked], np.ones(len(queries)))
        rest = 1 - mass[:, picked] @ weights
        if m in counts:
            used = np.array(picked)[weights > 0]
            b = logs[used] + np.log(weights[weights > 0])
            w = softmax(keys[used], b, queries)
            chosen[m] = (keys[used], np.linalg.lstsq(w, wanted, rcond=1e-10)[0], b)
    out = [chosen[m] for m in counts]
    errors = [distance(h, queries, wanted) for h in out]
    return Distilled(list(counts), out, errors, np.array(errors)[:, None])


def _dictionary(heads: list[Atoms], queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, log-weights and softmax shares (n, atoms) of the heaviest atoms of the product."""
    keys, logs = heads[0][0], heads[0][2]
    mass = softmax(keys, logs, queries)
    for k, _, b in heads[1:]:
        share = softmax(k, b, queries)
        keys = (keys[:, None] + k).reshape(-1, keys.shape[1])
        logs = (logs[:, None] + b).reshape(-1)
        mass = (mass[:, :, None] * share[:, None, :]).reshape(len(queries), -1)
        heavy = np.argsort(-mass.mean(0))[:DICTIONARY]
        keys, logs, mass = keys[heavy], logs[heavy], mass[:, heavy]
    return keys, logs, mass


def _lanes(heads, counts, queries, wanted, starts, rng) -> Lanes:
    """Random atoms of the product, drawn by their mean mass, with least-squares values."""
    keys, logs, mass = _dictionary(heads, queries)
    width, size = max(counts), len(counts) * starts
    shape = (size, width, keys.shape[1])
    lanes = Lanes(
        np.zeros(shape),
        np.zeros(shape[:2]),
        np.zeros((*shape[:2], wanted.shape[1])),
        np.zeros(shape[:2], bool),
    )
    chance = mass.mean(0) ** 0.5
    for lane, m in enumerate(np.repeat(counts, starts)):
        rows = rng.choice(len(keys), m, replace=len(keys) < m, p=chance / chance.sum())
        lanes.keys[lane, :m], lanes.logs[lane, :m], lanes.mask[lane, :m] = keys[rows], logs[rows], True
        w = softmax(keys[rows], logs[rows], queries)
        ridge = 1e-3 * np.eye(m) * len(queries) / m
        lanes.values[lane, :m] = np.linalg.solve(w.T @ w + ridge, w.T @ wanted)
    return lanes


def _descend(lanes: Lanes, train, held, scale, rate: float, steps: int) -> tuple[Lanes, np.ndarray]:
    """The best head of every lane on the held-out queries, and its error there."""
    starts = (lanes.keys, lanes.logs, lanes.values, lanes.mask)
    # Batches are slices of the queries, in random order, and repeated at the end so that all are as long.
    extra = min(BATCH, len(train[0])) - 1
    train = tuple(np.concatenate([x, x[:extra]]) for x in train)
    data = (*train, *held, scale, np.float64(rate), np.int32(-(-steps // CHECK)))
    keys, logs, values, error = run_lanes(_adam, starts, *data, dtype=jnp.float32)
    return Lanes(keys, logs, values, lanes.mask), np.where(np.isfinite(error), error, np.nan)


def _adam(start, points, wanted, held, held_wanted, scale, rate, rounds):
    """One lane of the descent: ``rounds`` of ``CHECK`` steps, the best on the held-out queries kept."""
    *params, keep = start
    powers = jnp.asarray(POWERS, points.dtype)
    adam = optax.scale_by_adam(b1=0.9, b2=0.99)
    size = min(BATCH, (len(points) + 1) // 2)
    steps, choices = rounds * CHECK, len(points) - size + 1

    def square(params, q, y):
        return (residual(params, keep, q, y) ** 2).sum(-1)

    def loss(params, power, begin):
        batch = [jax.lax.dynamic_slice_in_dim(x, begin, size) for x in (points, wanted)]
        sizes = square(params, *batch)
        top = jax.lax.stop_gradient(jnp.maximum(sizes.max(), 1e-30))
        return jnp.log(jnp.mean((sizes / top) ** (power / 2))) / power

    def step(i, carry):
        params, memory = carry
        power = powers[jnp.minimum(len(POWERS) * i // steps, len(POWERS) - 1)]
        slope = jax.grad(loss)(params, power, (i * size) % choices)
        moves, memory = adam.update(slope, memory)
        pace = rate * jnp.minimum(1.0, 2 * (1 - i / steps)).astype(points.dtype)
        return jax.tree.map(lambda p, c, u: p - pace * c * u, params, tuple(scale), moves), memory

    def body(j, carry):
        params, memory, best = carry
        params, memory = jax.lax.fori_loop(j * CHECK, (j + 1) * CHECK, step, (params, memory))
        top = jnp.sqrt(square(params, held, held_wanted).max())
        best = jax.tree.map(lambda a, b: jnp.where(top < best[0], a, b), (top, *params), best)
        return params, memory, best

    params = tuple(params)
    begin = (jnp.sqrt(square(params, held, held_wanted).max()), *params)
    best = jax.lax.fori_loop(0, rounds, body, (params, adam.init(params), begin))[2]
    return *best[1:], best[0]


def _better_values(head: Atoms, train, held) -> Atoms:
    """The head in float64, with least-squares values if they lower the error on the held-out queries."""
    keys, _, logs = head
    w = softmax(keys, logs, train[0])
    gram, right = w.T @ w, w.T @ train[1]
    trials = [head]
    for ridge in RIDGES:
        system = gram + ridge * np.trace(gram) / len(gram) * np.eye(len(gram))
        trials.append((keys, np.linalg.solve(system, right), logs))
    return min(trials, key=lambda h: distance(h, *held))
