"""Certified brackets for any point set: landmark lower ends, streamed upper ends."""

import math
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from ..certify import Certificate
from ._finite import (
    PointAttention,
    aggregate,
    bernstein,
    certified_error,
    least_rank,
    lower_certificate,
    nearest,
    row_space,
    sharpen,
)
from ._flatten import flattened

LLOYD = 4  # refinements of the cells
MOST_LANDMARKS = 1536
SHARPEN_UP_TO = 2**22  # entries; a dozen passes over the matrix for each rank tried
FINE, FINE_SHARE = 768, 16  # size of the matrix whose spectrum is flattened: at most, and per cell


@dataclass(frozen=True)
class PointBracket:
    """Certified bracket on the eps-rank of softmax(beta q k' + log_weights).

    Attributes:
        lower, upper: proved ends. eps: the error in max-row l1 norm.
        upper_error: the error of the rank-``upper`` matrix, verified in blocks of rows.
        lower_certificate: kind ``rank-lower`` or ``rank-lower-psd``, about an aggregated matrix.
        rounding: proved l1 distance, row by row, of that matrix from the exact aggregated one, so
            that ``lower_certificate.verify().bound - rounding > eps``.
    """

    eps: float
    lower: int
    upper: int
    upper_error: float
    lower_certificate: Certificate
    rounding: float

    def __repr__(self) -> str:
        return f"PointBracket({self.lower} <= r_eps <= {self.upper}; eps={self.eps:g}, certified)"


def sphere_points(d: int, n: int, beta: float, rng: np.random.Generator) -> PointAttention:
    """Self-attention of n independent uniform points on the unit sphere of R^d.

    >>> sphere_points(3, 10, 4.0, np.random.default_rng(0)).q.shape
    (10, 3)
    """
    if int(d) != d or d < 1 or int(n) != n or n < 1:
        raise ValueError(f"d and n must be integers >= 1, got {d} and {n}.")
    points = rng.normal(size=(n, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return PointAttention(points, points, float(beta), np.zeros(n))


def point_bracket(attention: PointAttention, eps: float) -> PointBracket:
    """Bracket the eps-rank: cells or a flattened spectrum below, principal directions above.

    No n x n array is held: a lower end costs s rows for each s tried, an upper end a few passes
    over blocks of rows; what is stored is n x (landmarks), about six times the lower end and at most
    n / 2. For matrices that fit in memory ``attnlab.rank`` is sharper.

    Arguments:
        attention: the points; n up to a few thousand is practical.
        eps: error in max-row l1 norm, in (0, 1).

    Raises:
        ValueError: eps out of range (bad points are refused by ``PointAttention``).

    >>> rng = np.random.default_rng(0)
    >>> point_bracket(sphere_points(2, 50, 4.0, rng), 0.3)
    PointBracket(5 <= r_eps <= 7; eps=0.3, certified)
    """
    if not 0 < eps < 1:
        raise ValueError(f"eps must be between 0 and 1, got {eps}: it is an l1 error, e.g. 0.2.")
    if not isinstance(attention, PointAttention):
        raise ValueError("attention must be a PointAttention: wrap q, k, beta, log_weights in one.")
    with Console(stderr=True).status(f"point_bracket: {len(attention.q)} x {len(attention.k)}"):
        return _bracket(attention, eps)


def _bracket(attention: PointAttention, eps: float) -> PointBracket:
    lower, certificate = best_lower(attention, eps, lower_certificate(_largest_square(attention, eps)))
    order = farthest_first(
        attention.q, min(max(len(attention.q) // 2, 256), MOST_LANDMARKS, len(attention.q))
    )
    upper, error = len(attention.q), 0.0
    count = max(6 * lower, 256)
    limit = eps * (1 - 1e-9) - attention.logit_error
    while True:
        right, left = row_space(attention, order[:count])
        found = least_rank(attention, left, right, limit)
        if found is not None:
            factors = left[:, : found[0]] * found[1], right[:, : found[0]]
            if len(attention.q) * len(attention.k) <= SHARPEN_UP_TO:
                factors = sharpen(attention, right, left, limit, found[0]) or factors
            measured = certified_error(attention, *factors)
            if measured <= eps:
                upper, error = factors[0].shape[1], measured
                break
        if count >= len(order):
            break
        count = min(2 * count, len(order))
    return PointBracket(float(eps), lower, upper, error, certificate, attention.aggregate_error)


def best_lower(attention: PointAttention, eps: float, cells: Certificate) -> tuple[int, Certificate]:
    """The better proved lower end of two: by cells, and by a flattened spectrum of a finer matrix."""
    size = min(FINE, max(FINE_SHARE * (cells.claim["rank"] + 1), FINE // 3))
    if max(len(attention.q), len(attention.k)) <= FINE:
        matrix = attention.rows(slice(None))
    else:
        matrix = _square(attention, farthest_first(attention.k, min(size, len(attention.k))))
    best = 1, cells
    for certificate in (cells, flattened(matrix, eps)):
        if certificate is None or certificate.claim["rank"] < best[0]:
            continue
        if certificate.verify().bound > eps + attention.aggregate_error:
            best = certificate.claim["rank"] + 1, certificate
    return best


def farthest_first(points: np.ndarray, count: int) -> np.ndarray:
    """Indices of a farthest-first traversal: each next point is the farthest from those before."""
    order = [int((points**2).sum(1).argmax())]
    distance = ((points - points[order[0]]) ** 2).sum(1)
    while len(order) < count:
        order.append(int(distance.argmax()))
        distance = np.minimum(distance, ((points - points[order[-1]]) ** 2).sum(1))
    return np.array(order)


def _largest_square(attention: PointAttention, eps: float) -> np.ndarray:
    """Grow the number of cells geometrically, then bisect; [[1]] if nothing is proved."""
    best, n = np.ones((1, 1)), len(attention.k)
    order = farthest_first(attention.k, min(n, MOST_LANDMARKS))
    low, high = 1, 2
    while high <= len(order):
        square = _square(attention, order[:high])
        if bernstein(square) <= eps + 2 * attention.aggregate_error:
            break
        best, low, high = square, high, max(high + 1, math.ceil(1.5 * high))
    high = min(high, len(order) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        square = _square(attention, order[:middle])
        if bernstein(square) > eps + 2 * attention.aggregate_error:
            best, low = square, middle
        else:
            high = middle
    return best


def _square(attention: PointAttention, seeds: np.ndarray) -> np.ndarray:
    """Cells around the seeds, evened out by Lloyd's iteration; one query near each centre."""
    points, centres = attention.k, attention.k[seeds]
    labels = nearest(centres, points)
    for _ in range(LLOYD):
        counts = np.maximum(np.bincount(labels, minlength=len(seeds)), 1)
        sums = [np.bincount(labels, column, minlength=len(seeds)) for column in points.T]
        centres = np.stack(sums, 1) / counts[:, None]
        labels = nearest(centres, points)
    labels = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(labels)
    centres = np.stack([np.bincount(labels, column) / counts for column in points.T], 1)
    return aggregate(attention, nearest(attention.q, centres), labels)
