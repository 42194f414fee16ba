"""Certified ends for many weighted points, without ever holding the n x n matrix.

Lower ends come from a small aggregated matrix: dropping queries and adding up columns by clusters
can only lower the eps-rank, because ||E P||_1 <= ||E||_1 for a 0/1 cluster map P. Upper ends come
from factors that are measured in blocks of rows. Each is judged by ``attnlab.certify``; what the
rounding of the matrices judged can cost is bounded in ``_rounding``.

Memory is n times the number of landmarks or clusters, a few hundred, never n x n.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..certify import Certificate
from ._rounding import aggregate_error, logit_error

BLOCK = 2**18  # entries of the attention matrix held at a time
TAPERS = (1.0, 0.9, 0.6)
ROUNDS = 12  # reweightings per rank tried
LEAST_SHARE = 0.7  # reweighting has never saved more than this


@dataclass(frozen=True, eq=False)
class PointAttention:
    """softmax(beta q k' + log_weights) of point sets, formed only in blocks of rows.

    Attributes:
        q: shape (m, d). k: shape (N, d). beta: inverse temperature. log_weights: shape (N,), the
            log of the multiplicity of each key (equal columns merge into one weighted column).
            All are taken as exact; stored as float64.

    Raises:
        ValueError: shapes that do not fit, or values that are not finite.
    """

    q: np.ndarray
    k: np.ndarray
    beta: float
    log_weights: np.ndarray

    def __post_init__(self) -> None:
        q, k, b = (_real(name, getattr(self, name)) for name in ("q", "k", "log_weights"))
        if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or b.shape != k.shape[:1] or not q.size:
            raise ValueError(
                f"q, k and log_weights must have shapes (m, d), (N, d) and (N,), got {q.shape}, {k.shape} "
                f"and {b.shape}."
            )
        number = isinstance(self.beta, int | float | np.integer | np.floating)
        if not (number and math.isfinite(self.beta) and self.beta >= 0):
            raise ValueError(f"beta must be a finite number >= 0, got {self.beta!r}: an inverse temperature.")
        for name, value in (("q", q), ("k", k), ("beta", float(self.beta)), ("log_weights", b)):
            object.__setattr__(self, name, value)
        if not math.isfinite(self.logit_error):
            raise ValueError("The logits overflow: scale q, k or beta down.")

    @property
    def logit_error(self) -> float:
        """What rounding of the logits can change in a row of the softmax (l1, proved)."""
        return logit_error(self.q, self.k, self.beta, self.log_weights)

    @property
    def aggregate_error(self) -> float:
        """What rounding can change in a row of an aggregated matrix (l1, proved)."""
        return aggregate_error(self.q, self.k, self.beta, self.log_weights)

    def __repr__(self) -> str:
        return (
            f"PointAttention({len(self.q)} x {len(self.k)} points, d={self.q.shape[1]}, beta={self.beta:g})"
        )

    def logits(self, rows: np.ndarray | slice) -> np.ndarray:
        """Logits of some rows, shape (rows, N), shifted so that the largest is 0."""
        z = self.beta * (self.q[rows] @ self.k.T) + self.log_weights
        return z - z.max(1, keepdims=True)

    def rows(self, rows: np.ndarray | slice) -> np.ndarray:
        """Attention probabilities of some rows, shape (rows, N)."""
        p = np.exp(self.logits(rows))
        return p / p.sum(1, keepdims=True)

    def blocks(self) -> Iterator[slice]:
        """Slices that cover all rows."""
        height = max(BLOCK // len(self.k), 1)
        return (slice(i, i + height) for i in range(0, len(self.q), height))


def _real(name: str, value: object) -> np.ndarray:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers.") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinite entries: drop those points first.")
    return array


def aggregate(attention: PointAttention, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The matrix A[rows] P for the cluster map P of ``labels`` (N,), shape (rows, clusters).

    Every number 0, ..., max(labels) occurs among the labels.
    """
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(int(labels.max()) + 1))
    height = max(BLOCK // len(labels), 1)
    parts = (attention.rows(rows[i : i + height])[:, order] for i in range(0, len(rows), height))
    return np.concatenate([np.add.reduceat(part, starts, axis=1) for part in parts])


def nearest(points: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Index of the nearest of ``points`` for every target; the first one where several are."""
    squares, height = (points**2).sum(1), max(BLOCK // len(points), 1)
    parts = (targets[i : i + height] for i in range(0, len(targets), height))
    return np.concatenate([(squares - 2 * part @ points.T).argmin(1) for part in parts])


def bernstein(square: np.ndarray) -> float:
    """1 / ||M^-1|| (l_inf): every matrix of rank < s is at least this far from M. An estimate."""
    try:
        inverse = np.linalg.inv(square)
    except np.linalg.LinAlgError:
        return 0.0
    size = np.abs(inverse).sum(1).max()
    return float(1 / size) if np.isfinite(size) else 0.0


def lower_certificate(square: np.ndarray) -> Certificate:
    """The ``rank-lower`` certificate of an aggregated s x s matrix: its eps-rank is s."""
    identity = np.eye(len(square))
    claim = {"rank": len(square) - 1, "error": bernstein(square) * (1 - 1e-9)}
    return Certificate("rank-lower", claim, {"L": identity, "R": identity}, {"attention": square})


def row_space(attention: PointAttention, landmarks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Principal directions V (N, p) of A inside the span of some of its rows, and A V (m, p).

    With enough landmarks this is the truncated SVD, at the cost of m N p operations in blocks.
    """
    basis = np.linalg.svd(attention.rows(landmarks), full_matrices=False)
    basis = basis[2][basis[1] > 1e-12 * basis[1][0]].T
    image = np.concatenate([attention.rows(block) @ basis for block in attention.blocks()])
    turn = np.linalg.svd(image, full_matrices=False)[2].T
    return basis @ turn, image @ turn


def streamed_error(
    attention: PointAttention, left: np.ndarray, right: np.ndarray, limit: float = np.inf
) -> float:
    """max_i ||A_i - left_i right'||_1 in float64; stops early once it exceeds ``limit``."""
    worst = 0.0
    for block in attention.blocks():
        error = np.abs(attention.rows(block) - left[block] @ right.T).sum(1).max()
        worst = max(worst, float(error))
        if worst > limit:
            break
    return worst


def least_rank(
    attention: PointAttention, left: np.ndarray, right: np.ndarray, eps: float
) -> tuple[int, np.ndarray] | None:
    """The least k for which the first k directions, tapered, err by at most eps (float64 estimate).

    A sharp cut-off is best in l2, but its error kernel oscillates far out; in l1 a cosine roll-off
    over the last directions is better for large point sets. Returns k and the taper, shape (k,).
    """
    best = None
    for flat in TAPERS:
        low, high = 0, left.shape[1] if best is None else best[0]
        while high - low > 1:
            middle = (low + high) // 2
            scaled = left[:, :middle] * _taper(middle, flat)
            error = streamed_error(attention, scaled, right[:, :middle], eps)
            low, high = (low, middle) if error <= eps else (middle, high)
        taper = _taper(high, flat)
        if best is None or high < best[0]:
            if streamed_error(attention, left[:, :high] * taper, right[:, :high], eps) > eps:
                continue
            best = high, taper
    return best


def sharpen(
    attention: PointAttention, basis: np.ndarray, image: np.ndarray, eps: float, rank: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors of the least rank below ``rank`` found with max-row l1 error <= eps; None if none.

    Truncation of diag(w) A diag(c) instead of A, with w raised on rows that err most and c lowered on
    columns that do, so that the l2 fit imitates an l1 fit of the worst row. A is
    represented by ``image @ basis.T`` for the truncation, and by itself for the error.
    """
    rows, columns = np.ones(len(image)), np.ones(len(basis))
    low, high, best = math.floor(LEAST_SHARE * rank), rank, None
    while high - low > 1:
        middle = (low + high) // 2
        found = None
        for _ in range(ROUNDS):
            q, r = np.linalg.qr(columns[:, None] * basis)
            u, s, vt = np.linalg.svd((rows[:, None] * image) @ r.T, full_matrices=False)
            left = u[:, :middle] * s[:middle] / rows[:, None]
            right = (q @ vt[:middle].T) / columns[:, None]
            row_errors, column_errors = np.zeros(len(rows)), np.zeros(len(columns))
            for block in attention.blocks():
                error = np.abs(attention.rows(block) - left[block] @ right.T)
                row_errors[block] = error.sum(1)
                column_errors += rows[block] @ error
            if row_errors.max() <= eps:
                found = left, right
                break
            # Rows: multiplicative, for the maximum. Columns: reweighted least squares for l1.
            rows = rows * np.clip(row_errors / row_errors.mean(), 0.1, 10) ** 0.4
            rows /= rows.mean()
            columns = np.clip(column_errors / column_errors.mean(), 1e-3, 1e3) ** -0.5
        low, high, best = (low, middle, found) if found else (middle, high, best)
    return best


def _taper(count: int, flat: float) -> np.ndarray:
    """1 on the first part ``flat`` of the directions, then a squared cosine down to 0."""
    place = (np.arange(count) + 0.5) / count
    return np.cos(np.pi / 2 * np.clip((place - flat) / max(1 - flat, 1e-9), 0, 1)) ** 2


def certified_error(attention: PointAttention, left: np.ndarray, right: np.ndarray) -> float:
    """max_i ||A_i - left_i right'||_1, verified block by block (kind ``rank-upper``).

    The subjects are the computed logits; ``logit_error`` brings the bound back to the exact ones.
    """
    worst = 0.0
    for block in attention.blocks():
        claim = {"rank": left.shape[1], "error": 2.0}
        witness = {"U": left[block], "W": right.T}
        subject = {"logits": attention.logits(block)}
        worst = max(worst, Certificate("rank-upper", claim, witness, subject).verify().bound)
    return math.nextafter(worst + attention.logit_error, math.inf)
