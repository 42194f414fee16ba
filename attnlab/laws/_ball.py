"""The ball law r_eps = Theta(beta^(d/2)), from certified brackets of finite weighted point sets."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

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
)
from ._points import best_lower

PER_WIDTH = {1: 8.0, 2: 1.5}  # grid points per Gaussian width 1/sqrt(beta); coarser from d = 3 on
COARSE = 1.25
LEAST_POINTS = 64
MOST_POINTS = 8192
SIZES = np.linspace(1.4, 3.6, 45)  # candidate cell sizes, in Gaussian widths
ENDS = np.linspace(0.5, 1.2, 15)  # candidate sizes of the outer cells on a line


@dataclass(frozen=True)
class BallBracket:
    """Certified bracket on the eps-rank of one weighted point set in the ball of radius 1/2.

    Attributes:
        lower, upper: proved ends for this point set.
        points: distinct points. log10_size: log10 of the number of points with multiplicity.
        lower_certificate: kind ``rank-lower`` or ``rank-lower-psd``, about an aggregated matrix.
        upper_error: the error of the rank-``upper`` matrix, verified in blocks.
        rounding: proved l1 distance, row by row, of the certificate's matrix from the exact one, so
            that ``lower_certificate.verify().bound - rounding > eps``.
    """

    dim: int
    beta: float
    eps: float
    lower: int
    upper: int
    points: int
    log10_size: float
    upper_error: float
    lower_certificate: Certificate
    rounding: float

    def __repr__(self) -> str:
        return (
            f"BallBracket({self.lower} <= r_eps <= {self.upper}; d={self.dim}, beta={self.beta:g}, "
            f"eps={self.eps:g}, {self.points} distinct of 10^{self.log10_size:.1f} points, certified)"
        )


def ball_points(d: int, beta: float) -> PointAttention:
    """The point set: a grid in the ball |x| <= 1/2 with multiplicity e^{beta (1/8 - |y|^2/2)} at y.

    Its softmax is the row-normalised Gaussian exp(-beta |x - y|^2 / 2), which is why the law of [I]
    sets in at n >= C_d e^{beta/8} points: duplicates are column weights. The multiplicities are
    real numbers here; rounding them to integers changes a row by less than the smallest weight.

    Raises:
        ValueError: d or beta out of range, or a point set that would be too large.

    >>> ball_points(1, 64.0)
    PointAttention(64 x 64 points, d=1, beta=64)
    """
    if not isinstance(d, int | np.integer) or d < 1:
        raise ValueError(f"d must be an integer >= 1, got {d!r}.")
    if not (math.isfinite(beta) and beta > 0):
        raise ValueError(f"beta must be finite and > 0, got {beta}: use an inverse temperature.")
    density = PER_WIDTH.get(d, COARSE)
    per_axis = max(math.ceil(density * math.sqrt(beta)), math.ceil(LEAST_POINTS ** (1 / d)), 2)
    axis = (np.arange(per_axis) + 0.5) / per_axis - 0.5
    if per_axis**d > 20 * MOST_POINTS:
        raise ValueError(f"beta={beta:g} needs too many points in d={d}: use a smaller beta.")
    grid = np.array(list(product(axis, repeat=d)))
    points = grid[(grid**2).sum(1) <= 0.25 + 1e-12]
    if len(points) > MOST_POINTS:
        raise ValueError(
            f"beta={beta:g} needs {len(points)} points in d={d} (at most {MOST_POINTS}): use a smaller beta."
        )
    weights = beta * (0.125 - (points**2).sum(1) / 2)
    return PointAttention(points, points, beta, weights)


def ball_bracket(d: int, beta: float, eps: float) -> BallBracket:
    """Bracket the eps-rank of softmax(beta x y') over ``ball_points(d, beta)``.

    *Lower end.* Cut the ball into cells of size about 1/sqrt(beta), take one query per cell, and
    add up columns by cells: an s x s matrix M, and r_eps >= s once 1/||M^-1|| > eps. Cells are
    intervals (d = 1), hexagonal (d = 2) or cubic; their size and offset are searched. *Upper end.*
    Truncated principal directions in the span of landmark rows, measured in blocks. Both ends are
    proofs about this point set, found by a search that is not exhaustive.

    Arguments:
        d: dimension, at least 1 (1 and 2 are practical; 3 for small beta).
        beta: inverse temperature, > 0.
        eps: error in max-row l1 norm, in (0, 1).

    Raises:
        ValueError: an argument out of range, or a point set that would be too large.

    >>> ball_bracket(1, 64.0, 0.2)
    BallBracket(5 <= r_eps <= 6; d=1, beta=64, eps=0.2, 64 distinct of 10^4.8 points, certified)
    """
    if not 0 < eps < 1:
        raise ValueError(f"eps must be between 0 and 1, got {eps}: it is an l1 error, e.g. 0.2.")
    attention = ball_points(d, beta)
    with Console(stderr=True).status(f"ball_bracket: d={d}, beta={beta:g}, {len(attention.q)} points"):
        cells = lower_certificate(_largest_square(attention, eps))
        lower, certificate = best_lower(attention, eps, cells)
        upper, error = _upper(attention, int(d), float(beta), eps)
    size = np.logaddexp.reduce(attention.log_weights) / math.log(10)
    return BallBracket(
        int(d),
        float(beta),
        float(eps),
        lower,
        upper,
        len(attention.q),
        float(size),
        error,
        certificate,
        attention.aggregate_error,
    )


def _upper(attention: PointAttention, d: int, beta: float, eps: float) -> tuple[int, float]:
    """A rank with a certified error <= eps, and that error."""
    for spacing in (0.7, 0.5):  # more landmarks if the span is too poor
        landmarks = nearest(attention.q, _cubic(d, min(spacing / math.sqrt(beta), 0.5), 0.5))
        right, left = row_space(attention, np.unique(landmarks))
        found = least_rank(attention, left, right, eps * (1 - 1e-9) - attention.logit_error)
        if found is not None:
            rank, taper = found
            error = certified_error(attention, left[:, :rank] * taper, right[:, :rank])
            if error <= eps:
                return rank, error
    return len(attention.q), 0.0  # the matrix itself


def _largest_square(attention: PointAttention, eps: float) -> np.ndarray:
    """The largest aggregated matrix M with 1/||M^-1|| > eps; [[1]] if none."""
    best, points = np.ones((1, 1)), attention.q
    for labels in _partitions(points, attention.beta):
        names, labels = np.unique(labels, return_inverse=True)
        if not len(best) < len(names) <= len(points):
            continue
        counts = np.bincount(labels)
        centres = np.stack([np.bincount(labels, column) / counts for column in points.T], 1)
        rows = _outermost(points, labels, centres) if points.shape[1] == 1 else nearest(points, centres)
        if len(np.unique(rows)) < len(rows):
            continue
        square = aggregate(attention, rows, labels)
        if bernstein(square) > eps + 2 * attention.aggregate_error:
            best = square
    return best


def _partitions(points: np.ndarray, beta: float) -> Iterator[np.ndarray]:
    """Candidate cell numbers for every point, from coarse to fine."""
    d, width = points.shape[1], 1 / math.sqrt(beta)
    if d == 1:
        for count in range(2, min(len(points), math.ceil(0.8 / width) + 3)):
            for end in ENDS:
                sizes = np.ones(count)
                sizes[[0, -1]] = end
                knots = np.cumsum(sizes)[:-1] / sizes.sum() - 0.5
                yield np.searchsorted(knots, points[:, 0])
        return
    lattice = _hexagonal if d == 2 else _cubic
    for size in SIZES[::-1]:
        for offset in (0.0, 0.5):
            centres = lattice(d, size * width, offset)
            if len(centres) > 1:
                yield nearest(centres, points)


def _cubic(d: int, size: float, offset: float) -> np.ndarray:
    reach = math.ceil(0.5 / size)
    axis = (np.arange(-reach, reach + 1) + offset) * size
    centres = np.array(list(product(axis, repeat=d)))
    return centres[(centres**2).sum(1) <= (0.5 + 0.25 * size) ** 2]


def _hexagonal(_: int, size: float, offset: float) -> np.ndarray:
    reach = math.ceil(1.2 / size)
    i, j = (a.ravel() for a in np.meshgrid(*2 * (np.arange(-reach, reach + 1),), indexing="ij"))
    centres = np.stack([i + 0.5 * (j % 2) + offset, j * math.sqrt(0.75)], 1) * size
    return centres[(centres**2).sum(1) <= (0.5 + 0.2 * size) ** 2]


def _outermost(points: np.ndarray, labels: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """On a line: the middle of every cell, but the extreme points for the two outer cells."""
    rows = nearest(points, centres)
    rows[labels[points[:, 0].argmin()]] = points[:, 0].argmin()
    rows[labels[points[:, 0].argmax()]] = points[:, 0].argmax()
    return rows
