"""Lower ends of a streamed matrix from a flattened spectrum (2-summing, certificate kind rank-lower-psd).

For weights p on rows and c on columns let diag(p)^(1/2) A diag(c) = U S V'. With R = diag(c) V_s S_s^-1
the matrix (A R)' diag(p) (A R) is the identity, so every matrix of rank k < s errs by at least sqrt(t) in
some row once (s - k) - t max_j |r_j|^2 >= 0 (trace and Ky Fan). Hence, for all k at once,

    a_{k+1} >= sqrt((s - k) / max_j |r_j|^2)    and    r_eps >= s - eps^2 max_j |r_j|^2.

c is moved until the rows r_j have nearly one length, and p towards the rows that matter, as in optimal
design. It happens inside the leading directions of A; one pass over A then makes the identity exact.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ._stream import Stream, times
from ._stream_basis import Basis

ROUNDS, PATIENCE = 24, 6  # and rounds without progress after which it ends
KEPT = 0.2  # directions with singular values below this share of eps take no part
COLUMN_POWER, ROW_POWER = 0.25, 0.5
COLUMN_RANGE, ROW_RANGE = 10.0, 1000.0  # beyond, weights would exploit the directions left out
MARGIN = 1e-5  # relative, for the rounding of the last pass and of the check


@dataclass(frozen=True, eq=False)
class Flat:
    """R (N, s) with (A R)' diag(P) (A R) near the identity, and the longest row of R, squared."""

    right: np.ndarray
    weights: np.ndarray
    longest: float

    @property
    def size(self) -> int:
        """s."""
        return self.right.shape[1]

    def rank(self, eps: float) -> int:
        """The largest k with a_{k+1} > eps, or -1."""
        return max(self.size - math.ceil((eps * (1 + MARGIN)) ** 2 * self.longest * (1 + MARGIN)), -1)

    def error(self, rank: int) -> float:
        """The lower bound on a_{rank+1}."""
        return math.sqrt(max(self.size - rank, 0) / self.longest) * (1 - MARGIN)


class Spectrum:
    """The leading part of A on the host, in float64."""

    def __init__(self, basis: Basis):
        image = basis.image.astype(np.float64)
        values, turn = np.linalg.eigh(image.T @ image)
        turn = turn[:, ::-1]
        self.values = np.sqrt(np.maximum(values[::-1], 0) / max(values[-1], 1e-300))
        self._image, self._directions = image @ turn, basis.directions.astype(np.float64) @ turn

    def flatten(self, keep: int, score: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Flat:
        """The best of some rounds of reweighting.

        Arguments:
            keep: leading directions that take part.
            score: of every s = 1, ..., keep, given s and max_j |r_j|^2; larger is better.
        """
        a, b = self._image[:, :keep], self._directions[:, :keep]
        best, reached, stale, sizes = None, -math.inf, 0, np.arange(1, keep + 1)
        columns, rows = np.ones(len(b)), np.full(len(a), 1 / len(a))
        for _ in range(ROUNDS):
            root, back = _roots((b * columns[:, None] ** 2).T @ b)
            squares, vectors = np.linalg.eigh(root @ ((a * rows[:, None]).T @ a) @ root)
            vectors = vectors[:, ::-1] / np.sqrt(np.maximum(squares[::-1], 1e-24 * squares[-1]))
            right = columns[:, None] ** 2 * (b @ (back @ vectors))
            sums = np.cumsum(right**2, axis=1)
            scores = score(sizes, sums.max(0))
            size, gain = int(scores.argmax()), float(scores.max())
            stale = 0 if gain > reached + 1e-4 * abs(reached) else stale + 1
            if gain > reached:
                best, reached = Flat(right[:, : size + 1].copy(), rows, float(sums[:, size].max())), gain
            if stale == PATIENCE:
                break
            size = int(score(sizes, sums.mean(0)).argmax()) + 1  # the best one if all lengths were equal
            lengths = sums[:, size - 1]
            leverage = ((a @ (root @ vectors[:, :size])) ** 2).sum(1)
            ratio = lengths.mean() / np.maximum(lengths, 1e-300)
            columns = columns * np.clip(ratio, 1e-3, 1e3) ** COLUMN_POWER
            columns = np.clip(columns / np.median(columns), 1 / COLUMN_RANGE, COLUMN_RANGE)
            rows = rows * np.maximum(leverage, 1e-300) ** ROW_POWER
            rows = np.maximum(rows / rows.sum(), 1 / (ROW_RANGE * len(rows)))
            rows /= rows.sum()
        assert best is not None
        return best

    def for_eps(self, eps: float) -> Flat:
        """The flat subspace that proves the largest rank at this tolerance."""
        keep = max(int((self.values > KEPT * eps).sum()), 1)
        return self.flatten(keep, lambda size, longest: size - eps**2 * longest)

    def for_rank(self, rank: int) -> Flat | None:
        """The flat subspace that proves the largest lower bound on a_{rank+1}."""
        most = int((self.values > 1e-3).sum())
        if rank >= most:
            return None
        return self.flatten(min(2 * rank + 16, most), lambda size, longest: (size - rank) / longest)


def exact(data: Stream, flat: Flat) -> Flat:
    """The same subspace with (A R)' diag(P) (A R) = I for A itself, up to the precision of a pass."""
    image_of = data.flat(times(data, data.shared(flat.right))).astype(np.float64)
    back = _roots((image_of * flat.weights[:, None]).T @ image_of)[1]
    right = flat.right @ back
    return Flat(right, flat.weights, float((right**2).sum(1).max()))


def witness(flat: Flat) -> dict[str, np.ndarray]:
    """The arrays of a certificate."""
    return {"R": flat.right, "P": flat.weights[None]}


def _roots(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Square root and inverse square root of a positive matrix, with a floor for the latter."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-14 * values[-1])
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
