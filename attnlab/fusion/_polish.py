"""Minimax polish on the host in float64: sequential linear programs with exchange of worst points.

Each step linearises the error of the head at the worst points of a fine grid and of a pool of local
maxima, and minimises the largest linearised error inside a trust region with HiGHS. The pool grows by
ascent from the current worst points, so that a fit cannot look good between the points.
"""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import maximum_filter
from scipy.optimize import linprog

from ._box import Box
from ._function import Function, head_values, largest_rows, softmax, worst_points

GRID = {1: 601, 2: 61, 3: 21, 4: 9, 5: 5}
ACTIVE = 256  # points in one linear program
POOL = 1024
PEAKS = 128  # ascents per exchange

Atoms = tuple[np.ndarray, np.ndarray, np.ndarray]  # keys (m, d), values (m, p), log-weights (m,)


@dataclass(frozen=True, eq=False)
class Samples:
    """Where a fit is judged during the search: fixed points with the target's values there."""

    target: Function
    points: np.ndarray
    wanted: np.ndarray
    exchange: bool  # whether points between may be added (False: only the given points count)
    grid: int = 0  # points per axis of the grid that the first grid^d points form; 0 for none

    def error(self, head: Atoms) -> float:
        """Largest error at the points."""
        return float(np.abs(head_values(*head, self.points) - self.wanted).max())

    def extended(self, more: np.ndarray) -> "Samples":
        """The same with more points."""
        points = np.concatenate([self.points, more])
        wanted = np.concatenate([self.wanted, self.target(more)])
        return Samples(self.target, points, wanted, self.exchange, self.grid)


def fine_samples(target: Function, box: Box, seed: int = 0) -> Samples:
    """A grid with the faces and random points; above dimension 6 random points and corners only."""
    rng = np.random.default_rng(seed)
    if box.dim in GRID:
        first = box.grid(GRID[box.dim])
    else:
        first = rng.choice([-box.radius, box.radius], (2048, box.dim))
    more = rng.uniform(-box.radius, box.radius, (512 if box.dim <= 4 else 4096, box.dim))
    points = np.concatenate([first, more])
    return Samples(target, points, target(points), True, GRID.get(box.dim, 0))


def worst_seeds(size: np.ndarray, samples: Samples) -> np.ndarray:
    """Rows to start ascents from: the largest, and every local maximum of the grid that is not small."""
    rows = [largest_rows(size, 16)]
    if samples.grid:
        d = samples.points.shape[1]
        table = size[: samples.grid**d].reshape((samples.grid,) * d)
        peaks = np.flatnonzero((table >= maximum_filter(table, 3, mode="nearest")).ravel())
        peaks = peaks[size[peaks] > 0.8 * size.max()]
        rows.append(peaks[largest_rows(size[peaks], PEAKS)] if len(peaks) else peaks)
    return np.unique(np.concatenate(rows))


def polish(
    head: Atoms, samples: Samples, steps: int = 40, active: int = ACTIVE, stop: float = 0.0
) -> tuple[Atoms, float]:
    """The polished head and its largest error over the samples and all worst points met.

    Arguments:
        head: the start.
        samples: the points.
        steps: most linear programs to solve.
        active: points in one of them.
        stop: an error that is small enough.
    """
    points, wanted = samples.points, samples.wanted
    points, wanted = _exchange(head, samples, points, wanted)
    trust, idle = 0.3, 0
    best = _largest(head, points, wanted)
    for step in range(steps):
        if best <= stop or trust < 1e-7 or idle >= 3:
            break
        scales = _scales(head, samples)
        trial, predicted = _step(head, points, wanted, scales, trust, active)
        after = _largest(trial, points, wanted)
        gain = (best - after) / max(best - predicted, 1e-300)
        if gain < 0.7:
            # A second step from the trial point follows a curved valley that one linear step leaves.
            second, _ = _step(trial, points, wanted, scales, trust, active)
            later = _largest(second, points, wanted)
            if later < after:
                trial, after = second, later
                gain = (best - after) / max(best - predicted, 1e-300)
        if after < best:
            idle = idle + 1 if after > best * (1 - 3e-5) else 0
            head, best = trial, after
            trust = min(trust * 2, 2.0) if gain > 0.7 else trust if gain > 0.2 else trust / 2
        else:
            trust /= 4
        if step % 5 == 4:
            points, wanted = _exchange(head, samples, points, wanted)
            best = _largest(head, points, wanted)
    points, wanted = _exchange(head, samples, points, wanted)
    return head, _largest(head, points, wanted)


def _largest(head: Atoms, points: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(head_values(*head, points) - wanted).max())


def jacobian(head: Atoms, points: np.ndarray) -> np.ndarray:
    """(n p, m (d + 1 + p)) derivative of the head's values by keys, log-weights and values."""
    keys, values, logs = head
    (m, d), (n, p) = keys.shape, (len(points), values.shape[1])
    w = softmax(keys, logs, points)
    by_logit = w[:, None, :] * (values.T[None] - (w @ values)[:, :, None])
    by_key = by_logit[..., None] * points[:, None, None, :]
    by_value = np.broadcast_to(w[:, None, :, None] * np.eye(p)[None, :, None, :], (n, p, m, p))
    return np.concatenate([by_key, by_logit[..., None], by_value], -1).reshape(n * p, m * (d + 1 + p))


def _scales(head: Atoms, samples: Samples) -> np.ndarray:
    """Sizes of moves with comparable effect: logits by 1, values by half their range."""
    keys, values, _ = head
    reach = np.abs(samples.points).max()
    spread = 0.5 * max(float(np.ptp(samples.wanted)), float(np.ptp(values))) + 1e-12
    row = np.concatenate([np.full(keys.shape[1], 1 / reach), [1.0], np.full(values.shape[1], spread)])
    return np.tile(row, len(keys))


def _moved(head: Atoms, change: np.ndarray) -> Atoms:
    keys, values, logs = head
    d = keys.shape[1]
    step = change.reshape(len(keys), -1)
    logs = logs + step[:, d]
    return keys + step[:, :d], values + step[:, d + 1 :], logs - logs.max()


def _step(
    head: Atoms, points: np.ndarray, wanted: np.ndarray, scales: np.ndarray, trust: float, active: int
) -> tuple[Atoms, float]:
    """The head after the move that minimises the largest linearised error at the worst points within
    the trust region, and that error."""
    error = head_values(*head, points) - wanted
    worst = largest_rows(np.abs(error).max(1), active)
    rows, flat = jacobian(head, points[worst]) * scales, error[worst].reshape(-1)
    level = float(np.abs(flat).max()) or 1.0
    rows, flat = rows / level, flat / level
    ones = np.ones((len(flat), 1))
    reach = np.full(rows.shape[1], trust)
    # One shift of all keys and log-weights changes nothing: hold one atom's still.
    reach[: points.shape[1] + 1] = 0
    done = linprog(
        np.append(np.zeros(rows.shape[1]), 1.0),
        A_ub=np.block([[rows, -ones], [-rows, -ones]]),
        b_ub=np.concatenate([-flat, flat]),
        bounds=np.append(np.stack([-reach, reach], 1), [[0, np.inf]], 0),
        method="highs",
    )
    if done.x is None or not np.isfinite(done.x).all():
        return head, level
    return _moved(head, done.x[:-1] * scales), float(done.x[-1]) * level


def _exchange(
    head: Atoms, samples: Samples, points: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Add the local maxima reached from the current worst points; keep the pool bounded."""
    if not samples.exchange:
        return points, wanted
    target, base = samples.target, len(samples.points)
    size = lambda q: np.abs(head_values(*head, q) - target(q)).max(1)
    seeds = points[worst_seeds(np.abs(head_values(*head, points) - wanted).max(1), samples)]
    new = np.unique(worst_points(size, target.box, seeds, steps=14).round(12), axis=0)
    pool = np.concatenate([points[base:], new])[-POOL:]
    points = np.concatenate([samples.points, pool])
    return points, np.concatenate([samples.wanted, target(pool)])
