"""Step vectors of a totally positive matrix: where to put the sign changes (knots).

A step vector h is the cell average of a +-1 function on [0, N] that changes sign at every knot. What is
wanted is the one that minimises ||A h||_inf: A h is piecewise linear in the knots, so the tool is a
sequence of linear programmes, with single knots put elsewhere where that gets stuck.
"""

import numpy as np
from scipy.optimize import linprog

STEPS = 60  # linear programmes per descent; the step radius shrinks when one does not help
MOVES = 30  # relocations of a single knot before giving up
SAME = 1e-6  # relative spread at which alternating values count as equal


def averages(knots: np.ndarray, cells: int) -> np.ndarray:
    """Cell averages of the function that starts at +1 and changes sign at every knot."""
    edges = np.concatenate([[0.0], knots, [float(cells)]])
    signs = (-1.0) ** np.arange(len(edges) - 1)
    # The integral of the function up to each cell boundary, exact for full cells.
    h = np.zeros(cells)
    for sign, start, end in zip(signs, edges[:-1], edges[1:], strict=True):
        overlap = np.minimum(np.arange(1, cells + 1), end) - np.maximum(np.arange(cells), start)
        h += sign * np.clip(overlap, 0, 1)
    return np.clip(h, -1, 1)


def equioscillates(image: np.ndarray, rank: int) -> bool:
    """Whether ``image`` = A h alternates on rank + 1 rows at its largest value (then h is optimal)."""
    return alternating(image, rank)[0] >= np.abs(image).max() * (1 - SAME)


def descend(a: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Minimise max_i |(A h)_i| over the knots, locally."""

    def programme(image: np.ndarray, slope: np.ndarray):
        return np.vstack([slope, -slope]), np.concatenate([image, -image])

    return _sequential(a, knots, lambda x: oscillation(a, x), programme)[0]


def oscillation(a: np.ndarray, knots: np.ndarray) -> float:
    """max_i |(A h)_i| for the step vector with these knots."""
    return float(np.abs(a @ averages(knots, a.shape[1])).max())


def least_oscillation(a: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Minimise max_i |(A h)_i| over the knots: descent, and single knots put elsewhere while it helps."""
    knots = descend(a, knots)
    for _ in range(MOVES):
        if equioscillates(a @ averages(knots, a.shape[1]), len(knots)):
            break
        before = oscillation(a, knots)
        for moved in _relocations(a, knots):
            other = descend(a, moved)
            if oscillation(a, other) < before * (1 - SAME):
                knots = other
                break
        else:
            break
    return knots


def _relocations(a: np.ndarray, knots: np.ndarray) -> list[np.ndarray]:
    """The four best ways to take one knot out and put it at a quarter or three quarters of some cell."""
    cells = a.shape[1]
    found = []
    for t in range(len(knots)):
        rest = np.delete(knots, t)
        parts = a * averages(rest, cells)
        before = np.cumsum(parts, 1) - parts
        after = parts.sum(1, keepdims=True) - before - parts
        for share in (0.25, 0.75):
            values = np.abs(before + (2 * share - 1) * parts - after).max(0)
            found += [(values[c], t, float(c + share)) for c in np.argsort(values)[:2]]
    return [np.sort(np.append(np.delete(knots, t), place)) for _, t, place in sorted(found)[:4]]


def most_alternation(a: np.ndarray, starts: list[np.ndarray]) -> np.ndarray:
    """Knots that maximise the smallest of rank + 1 alternating values of A h.

    The minimum of max |A h| is not unique when A nearly splits into blocks, and then need not
    alternate; its value is still attained by some step vector that does.
    """

    rank = len(starts[0])

    def worst(knots: np.ndarray) -> float:
        return -alternating(a @ averages(knots, a.shape[1]), rank)[0]

    def programme(image: np.ndarray, slope: np.ndarray):
        _, rows, signs = alternating(image, rank)
        return -signs[:, None] * slope[rows], -signs * image[rows]

    found = []
    for start in starts:
        knots, value = _sequential(a, start, worst, programme)
        found.append((value, tuple(knots)))
    return np.array(min(found)[1])


def _sequential(a, knots, worst, programme) -> tuple[np.ndarray, float]:
    """Minimise ``worst(knots)`` by linear programmes within a step radius that adapts.

    ``programme(image, slope)`` gives G, c such that max(G d + c) models ``worst`` after a step d.
    """
    cells, rank = a.shape[1], len(knots)
    value, radius = worst(knots), cells / (2.0 * rank)
    unit = float(np.abs(a @ averages(knots, cells)).max())  # so that solver tolerances are relative
    signs = (-1.0) ** np.arange(rank)
    ordered = np.zeros((rank - 1, rank + 1))
    for t in range(rank - 1):
        ordered[t, t], ordered[t, t + 1] = 1, -1
    for _ in range(STEPS):
        slope = 2 * signs * a[:, np.minimum(knots.astype(int), cells - 1)]
        model, offset = programme(a @ averages(knots, cells), slope)
        system = np.vstack([np.hstack([model / unit, -np.ones((len(model), 1))]), ordered])
        limits = np.concatenate([-offset / unit, np.diff(knots)])
        low, high = np.maximum(-radius, -knots), np.minimum(radius, cells - knots)
        bounds = [*zip(low, high, strict=True), (None, None)]
        answer = linprog(np.eye(rank + 1)[-1], A_ub=system, b_ub=limits, bounds=bounds, method="highs")
        if answer.status != 0:
            break
        moved = np.clip(np.maximum.accumulate(knots + answer.x[:rank]), 0, cells)
        reached = worst(moved)
        gain, predicted = value - reached, value - unit * answer.x[-1]
        if gain > 0:
            knots, value = moved, reached
        if gain < 0.25 * predicted:
            radius *= 0.3
        elif gain > 0.75 * predicted:
            radius *= 2
        if predicted <= 1e-10 * unit or radius < 1e-13 * cells:
            break
    return knots, value


def alternating(image: np.ndarray, rank: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Least value, rows and signs of the best rank + 1 rows with alternating signs.

    With too few changes of sign, the next best is to demand an alternation that is not there: rows
    spread evenly, and a negative value.
    """
    runs = np.split(np.arange(len(image)), np.flatnonzero(np.diff(image >= 0)) + 1)
    peaks = np.array([run[np.abs(image[run]).argmax()] for run in runs])
    if len(peaks) > rank:
        windows = [peaks[i : i + rank + 1] for i in range(len(peaks) - rank)]
        rows = max(windows, key=lambda rows: np.abs(image[rows]).min())
        signs = np.where(image[rows] >= 0, 1.0, -1.0)
    else:
        rows = np.linspace(0, len(image) - 1, rank + 1).astype(int)
        signs = (-1.0) ** np.arange(rank + 1) * (1.0 if image[0] >= 0 else -1.0)
    return float((signs * image[rows]).min()), rows, signs
