"""One-dimensional interactions, where the error profile is known exactly.

If log A is q_i k_j up to row and column constants, then sorted by q and k the matrix is totally
positive and a_{K+1} = min ||A h||_inf over cell averages h of +-1 functions with K sign changes
(Micchelli-Pinkus; Pinkus, "n-Widths in Approximation Theory", 1985). The minimiser equioscillates on
K+1 rows, which is the lower certificate; the optimal B interpolates A in the columns that hold a
sign change and in mixtures of neighbouring rows at the sign changes of A h.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

STEPS = 60  # linear programmes per rank; the step radius shrinks when one does not help
FLAT = 1e-8  # relative size of the second singular value of a one-dimensional interaction


@dataclass(frozen=True, eq=False)
class Line:
    """A one-dimensional interaction: A = softmax(q_i k_j + b_j) up to rounding."""

    matrix: np.ndarray
    q: np.ndarray
    k: np.ndarray
    b: np.ndarray

    def solve(self, rank: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray] | None]:
        """Witnesses of kinds ``rank-lower-1d`` and ``rank-upper`` for this rank (1 <= rank < min(m, N)).

        The second is ``None`` when the interpolation conditions degenerate.
        """
        rows, columns = np.argsort(self.q, kind="stable"), np.argsort(self.k, kind="stable")
        a = self.matrix[np.ix_(rows, columns)]
        cells = a.shape[1]
        least = _least_oscillation(a, rank)
        most = least
        if not _equioscillates(a @ _averages(least, cells), rank):
            most = _most_alternation(a, rank, least)
        image, h = a @ _averages(most, cells), np.empty(cells)
        h[columns] = _averages(most, cells)
        lower = {"q": self.q, "k": self.k, "b": self.b, "h": h, "rows": rows[_alternating(image, rank)[1]]}
        factors = _interpolant(a, least, a @ _averages(least, cells), rank)
        if factors is None:
            return lower, None
        left, right = np.empty_like(factors[0]), np.empty_like(factors[1])
        left[rows], right[:, columns] = factors
        return lower, {"U": left, "W": right}


def line(matrix: np.ndarray) -> Line | None:
    """The one-dimensional interaction behind a positive matrix, or ``None`` if there is none."""
    if (matrix <= 0).any():
        return None
    log = np.log(matrix)
    centred = log - log.mean(1, keepdims=True)
    centred = centred - centred.mean(0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    if len(s) < 2 or s[0] <= 1e-9 or s[1] > FLAT * s[0]:
        return None
    q, k = u[:, 0] * np.sqrt(s[0]), vt[0] * np.sqrt(s[0])
    rest = log - np.outer(q, k)
    return Line(matrix, q, k, (rest - rest.mean(1, keepdims=True)).mean(0))


def _averages(knots: np.ndarray, cells: int) -> np.ndarray:
    """Cell averages of the function that starts at +1 and changes sign at every knot."""
    edges = np.concatenate([[0.0], knots, [float(cells)]])
    signs = (-1.0) ** np.arange(len(edges) - 1)
    # The integral of the function up to each cell boundary, exact for full cells.
    h = np.zeros(cells)
    for sign, start, end in zip(signs, edges[:-1], edges[1:], strict=True):
        overlap = np.minimum(np.arange(1, cells + 1), end) - np.maximum(np.arange(cells), start)
        h += sign * np.clip(overlap, 0, 1)
    return np.clip(h, -1, 1)


def _least_oscillation(a: np.ndarray, rank: int) -> np.ndarray:
    """Knots that minimise ||A h||_inf: descent from a few starts until one equioscillates."""
    found = []
    for start in _starts(a, rank):
        knots, value = _descend_knots(a, start)
        found.append((value, tuple(knots)))
        if _equioscillates(a @ _averages(knots, a.shape[1]), rank):
            break  # by total positivity an equioscillating solution is the minimum
    return np.array(min(found)[1])


def _starts(a: np.ndarray, rank: int) -> Iterator[np.ndarray]:
    """Quantiles of the column mass; then the solution of the rank below with one knot put in a gap."""
    grid = np.arange(a.shape[1] + 1.0)
    spread = np.concatenate([[0.0], np.cumsum(a.max(0))]) / a.max(0).sum()
    angles = (1 - np.cos(np.pi * (np.arange(rank) + 1) / (rank + 1))) / 2
    yield np.interp(angles, spread, grid)
    yield np.interp((np.arange(rank) + 1) / (rank + 1), spread, grid)
    if rank > 1:
        edges = np.concatenate([[0.0], _least_oscillation(a, rank - 1), grid[-1:]])
        for t in np.argsort(-np.diff(np.interp(edges, grid, spread))):
            middle = np.interp(np.interp(edges[t : t + 2], grid, spread).mean(), spread, grid)
            yield np.insert(edges[1:-1], t, middle)


def _equioscillates(image: np.ndarray, rank: int) -> bool:
    return _alternating(image, rank)[0] >= np.abs(image).max() * (1 - 1e-6)


def _descend_knots(a: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, float]:
    """Minimise max_i |(A h)_i| over the knots: A h is piecewise linear in them."""

    def worst(knots: np.ndarray) -> float:
        return float(np.abs(a @ _averages(knots, a.shape[1])).max())

    def programme(image: np.ndarray, slope: np.ndarray):
        return np.vstack([slope, -slope]), np.concatenate([image, -image])

    return _sequential(a, knots, worst, programme)


def _most_alternation(a: np.ndarray, rank: int, least: np.ndarray) -> np.ndarray:
    """Knots that maximise the smallest of rank + 1 alternating values of A h.

    The minimum of max |A h| is not unique when A nearly splits into blocks, and then need not
    alternate; its value is still attained by some step vector that does.
    """

    def worst(knots: np.ndarray) -> float:
        return -_alternating(a @ _averages(knots, a.shape[1]), rank)[0]

    def programme(image: np.ndarray, slope: np.ndarray):
        _, rows, signs = _alternating(image, rank)
        return -signs[:, None] * slope[rows], -signs * image[rows]

    target = float(np.abs(a @ _averages(least, a.shape[1])).max())
    found = [(worst(least), tuple(least))]
    for start in _starts(a, rank):
        knots, value = _sequential(a, start, worst, programme)
        found.append((value, tuple(knots)))
        if -value >= target * (1 - 1e-6):
            break
    return np.array(min(found)[1])


def _sequential(a, knots, worst, programme) -> tuple[np.ndarray, float]:
    """Minimise ``worst(knots)`` by linear programmes within a step radius that adapts.

    ``programme(image, slope)`` gives G, c such that max(G d + c) models ``worst`` after a step d.
    """
    cells, rank = a.shape[1], len(knots)
    value, radius = worst(knots), cells / (2.0 * rank)
    unit = float(np.abs(a @ _averages(knots, cells)).max())  # so that solver tolerances are relative
    signs = (-1.0) ** np.arange(rank)
    ordered = np.zeros((rank - 1, rank + 1))
    for t in range(rank - 1):
        ordered[t, t], ordered[t, t + 1] = 1, -1
    for _ in range(STEPS):
        slope = 2 * signs * a[:, np.minimum(knots.astype(int), cells - 1)]
        model, offset = programme(a @ _averages(knots, cells), slope)
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


def _alternating(image: np.ndarray, rank: int) -> tuple[float, np.ndarray, np.ndarray]:
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


def _interpolant(a, knots, image, rank):
    """U, W that reproduce A in the knots' columns and in row mixtures where ``image`` changes sign."""
    m, cells = a.shape
    columns = np.unique(np.minimum(knots.astype(int), cells - 1))
    changes = np.flatnonzero(np.diff(image >= 0))
    if len(columns) != rank or len(changes) < rank:
        return None
    if len(changes) > rank:  # spurious changes of sign come from the smallest values
        size = np.minimum(np.abs(image[changes]), np.abs(image[changes + 1]))
        changes = np.sort(changes[np.argsort(-size)[:rank]])
    mix = np.zeros((rank, m))
    for t, i in enumerate(changes):
        share = image[i + 1] / (image[i + 1] - image[i])
        mix[t, i], mix[t, i + 1] = share, 1 - share
    core = mix @ a[:, columns]
    try:
        return a[:, columns] @ np.linalg.inv(core), mix @ a
    except np.linalg.LinAlgError:
        return None
