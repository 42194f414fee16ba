"""Lower ends of a streamed matrix from a small aggregate of it (Bernstein numbers, kind rank-lower).

Dropping rows and adding up columns by clusters cannot raise any a_{k+1}, because ||E P||_1 <= ||E||_1 for a
0/1 map P. So a search on A[rows] P, a few hundred rows and clusters, serves A. It is the sharper of the two
lower ends where the rank is small beside the aggregate; a flattened spectrum of all of A is elsewhere.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ..certify._balls import FloatBalls
from ..certify._factored import Factored
from ._lower import search_lower
from ._stream_basis import Basis

LLOYD = 6  # refinements of the clusters
LANES = 8


@dataclass(frozen=True, eq=False)
class Aggregate:
    """A[rows] P in float64, with the cluster of every column."""

    rows: np.ndarray
    labels: np.ndarray
    matrix: np.ndarray

    @property
    def most(self) -> int:
        """The largest rank a search on it is worth."""
        return min(self.matrix.shape) // 2

    def search(self, ranks: list[int], steps: int, dtype, rng: np.random.Generator) -> list["Bernstein"]:
        """The best witness found for each rank, several starts each."""
        starts = max(LANES // len(ranks), 1)
        lanes = np.repeat(ranks, starts), np.tile(np.arange(starts), len(ranks))
        found, _ = search_lower(self.matrix, *lanes, steps, dtype, rng, self.most + 1)
        best: dict[int, Bernstein] = {}
        for rank, (right, weights) in zip(lanes[0], found, strict=True):
            size = np.nan_to_num(np.abs(weights).sum(1).max(), nan=np.inf)
            arrays = {"R": right, "C": weights, "rows": self.rows, "labels": self.labels}
            if rank not in best or 1 / size > best[rank].error:
                best[rank] = Bernstein(int(rank), float(1 / size), arrays)
        return list(best.values())


@dataclass(frozen=True, eq=False)
class Bernstein:
    """A witness that a_{rank+1} is at least about ``error``."""

    rank: int
    error: float
    witness: dict[str, np.ndarray]


def aggregate(exact: Factored, basis: Basis, count: int) -> Aggregate:
    """At most ``count`` independent rows, and as many clusters of nearly proportional columns."""
    m, n = exact.shape
    image = basis.image.astype(np.float64)
    values, turn = np.linalg.eigh(image.T @ image)
    size = min(count, basis.size)
    scales, turn = np.sqrt(np.maximum(values[::-1], 0))[:size], turn[:, ::-1][:, :size]
    rows = np.arange(m)
    if m > count:
        rows = np.sort(scipy.linalg.qr((image @ turn).T, pivoting=True, mode="r")[-1][:size])
    labels = np.arange(n)
    if n > count:
        directions = basis.directions.astype(np.float64)
        mass = np.maximum(directions @ image.sum(0), 1e-12 * m / n)
        half = max(size // 2, 1)
        points = (directions @ turn[:, :half]) * scales[:half] / mass[:, None]
        labels = _clusters(points, mass, count)
    matrix = exact.aggregate(rows, labels, False)
    assert isinstance(matrix, FloatBalls)
    return Aggregate(rows, labels, matrix.mid)


def _clusters(points: np.ndarray, mass: np.ndarray, count: int) -> np.ndarray:
    """Weighted k-means: the columns of A, each divided by its sum, as seen from the leading directions."""
    seeds = [int(mass.argmax())]
    distance = ((points - points[seeds[0]]) ** 2).sum(1)
    while len(seeds) < count:
        seeds.append(int((distance * mass).argmax()))
        distance = np.minimum(distance, ((points - points[seeds[-1]]) ** 2).sum(1))
    centres = points[seeds]
    for _ in range(LLOYD):
        labels = _nearest(centres, points)
        labels = np.unique(labels, return_inverse=True)[1]
        weight = np.bincount(labels, mass)
        centres = np.stack([np.bincount(labels, mass * x) / weight for x in points.T], 1)
    return np.unique(_nearest(centres, points), return_inverse=True)[1]


def _nearest(centres: np.ndarray, points: np.ndarray) -> np.ndarray:
    squares, height = (centres**2).sum(1), max(2**20 // len(centres), 1)
    parts = (points[i : i + height] for i in range(0, len(points), height))
    return np.concatenate([(squares - 2 * part @ centres.T).argmin(1) for part in parts])
