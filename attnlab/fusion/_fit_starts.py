"""Starts for the search: keys and log-weights of m atoms (values follow in closed form)."""

from functools import reduce
from itertools import combinations

import numpy as np

from ._box import Box
from ._fit_search import Lanes
from ._function import Function
from ._polish import Atoms

PAIRED = 0.1  # size of the keys of a nearly linear factor, relative to those it replaces
LARGEST_PRODUCT = 4096  # atoms of the plain product that are still written out


def product_atoms(target: Function) -> Atoms | None:
    """The plain product fusion (keys, values, log-weights), atoms with equal keys merged; ``None`` for
    callables and for products that are too large. It equals the target everywhere."""
    if target.heads is None or np.prod([len(h[2]) for h in target.heads], dtype=float) > LARGEST_PRODUCT:
        return None
    keys, values, logs = reduce(product_of, target.heads)
    unique, group = np.unique(keys.round(12), axis=0, return_inverse=True)
    weights = np.exp(logs - logs.max())
    mass = np.bincount(group.reshape(-1), weights)
    sums = [np.bincount(group.reshape(-1), weights * v) for v in values.T]
    return unique, np.stack(sums, 1) / mass[:, None], np.log(mass)


def product_of(first: Atoms, second: Atoms) -> Atoms:
    """The head that equals the sum of two heads: one atom for each pair of theirs."""
    return tuple((a[:, None] + b).reshape(-1, *a.shape[1:]) for a, b in zip(first, second, strict=True))  # pyright: ignore[reportReturnType]


def paired_keys(target: Function, m: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Keys and log-weights of products in which two heads of two atoms share one nearly linear factor,
    two atoms with close keys; those with exactly m atoms."""
    found = []
    heads = target.heads or []
    for i, j in combinations(range(len(heads)), 2):
        if len(heads[i][2]) != 2 or len(heads[j][2]) != 2:
            continue
        slope = PAIRED * sum(heads[h][0][1] - heads[h][0][0] for h in (i, j))
        keys, logs = np.stack([-0.5 * slope, 0.5 * slope]), np.zeros(2)
        for k, _, b in (h for n, h in enumerate(heads) if n not in (i, j)):
            keys = (keys[:, None] + k).reshape(-1, keys.shape[1])
            logs = (logs[:, None] + b).reshape(-1)
            if len(logs) > m:
                break
        if len(logs) == m:
            found.append((keys, logs))
    return found


def make_starts(
    target: Function, box: Box, counts: list[int], starts: int, width: int, rng: np.random.Generator
) -> tuple[Lanes, np.ndarray]:
    """``starts`` lanes for each count, padded to ``width`` atoms, and the count of every lane."""
    product = product_atoms(target)
    scale = _key_scale(target, box)
    size = len(counts) * starts
    keys, logs = np.zeros((size, width, box.dim)), np.zeros((size, width))
    mask = np.zeros((size, width), dtype=bool)
    lane_counts = np.repeat(counts, starts)
    for lane, m in enumerate(lane_counts):
        k, b = _start(lane % starts, int(m), product, scale, box.dim, rng)
        keys[lane, :m], logs[lane, :m], mask[lane, :m] = k, b, True
    return Lanes(keys, logs, np.zeros((size, width, target.width)), mask), lane_counts


def _start(
    kind: int, m: int, product: Atoms | None, scale: np.ndarray, d: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Cycles through six families; ``scale`` (d,) is a typical size of the target's keys."""
    spread = scale * rng.choice([0.3, 0.6, 1.0])
    family = kind % 6
    if family in (0, 1) and product is not None:
        keys, _, logs = product
        if family == 0 and len(keys) >= m:  # some atoms of the product, slightly moved
            rows = rng.choice(len(keys), m, replace=False)
            return keys[rows] + 0.05 * scale * rng.normal(size=(m, d)), logs[rows]
        return _merged(keys, logs, m, scale, rng)
    if family == 2:  # pairs of opposite keys, for targets with a centre of symmetry
        half = spread * rng.normal(size=((m + 1) // 2, d))
        middle = 0 if product is None else product[0].mean(0)
        pairs = np.stack([half, -half], 1).reshape(-1, d)[:m]
        if m % 2:
            pairs[-1] = 0
        return pairs + middle, np.zeros(m)
    if family == 3:  # along the diagonal of one orthant, as for a function of one sum
        sign = rng.choice([-1.0, 1.0], d) if kind > 6 else np.ones(d)
        line = np.linspace(-1, 1, m)[:, None] * sign * spread
        return line + 0.1 * spread * rng.normal(size=(m, d)), -(np.linspace(-1, 1, m) ** 2)
    if family == 4:  # cyclic shifts of a key, for targets with exchangeable coordinates
        seeds = spread * rng.normal(size=(-(-m // d), d))
        orbit = np.concatenate([np.roll(seeds, s, axis=1) for s in range(d)])[:m]
        return orbit + 0.02 * spread * rng.normal(size=(m, d)), np.zeros(m)
    return spread * rng.normal(size=(m, d)), 0.5 * rng.normal(size=m)


def _merged(
    keys: np.ndarray, logs: np.ndarray, m: int, scale: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The atoms of the product merged around m random centres."""
    centres = keys[rng.integers(len(keys), size=m)] + 0.3 * scale * rng.normal(size=(m, keys.shape[1]))
    nearest = ((keys[:, None] - centres) ** 2).sum(-1).argmin(1)
    weights = np.exp(logs - logs.max())
    mass = np.bincount(nearest, weights, minlength=m)
    sums = np.stack([np.bincount(nearest, weights * x, minlength=m) for x in keys.T], 1)
    filled = mass > 0
    centres[filled] = sums[filled] / mass[filled, None]
    return centres, np.log(np.where(filled, mass, weights.min()))


def _key_scale(target: Function, box: Box) -> np.ndarray:
    """Half the range of the summed keys; for a callable, keys that turn a softmax over in the box."""
    if target.heads is None:
        return np.full(box.dim, 2.0 / box.radius)
    reach = sum(np.ptp(k, axis=0) for k, _, _ in target.heads)
    return np.maximum(0.5 * reach, 1e-3 / box.radius)
