"""The matrix a bracket is about: validated, with duplicates removed for the search.

Proportional columns can be added up, and equal rows dropped, without changing any a_{k+1}; what the
search finds on the small matrix is lifted back, so that certificates always speak about the input.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

ROW_SUM_TOLERANCE = 1e-6
SAME = 1e-12  # entries of normalised rows or columns this close are called equal


@dataclass(frozen=True, eq=False)
class Logits:
    """Attention given by its logits (m, N): certificates then speak about their true softmax.

    ``-inf`` marks a masked entry. The rounding of the softmax is part of every bound.

    >>> Logits(np.zeros((2, 3)))
    Logits(2 x 3)
    """

    array: ArrayLike

    def __repr__(self) -> str:
        return f"Logits({' x '.join(map(str, np.shape(self.array)))})"


@dataclass(frozen=True, eq=False)
class Target:
    """Subject arrays for certificates, the float64 matrix, and its reduced form with the way back."""

    subject: dict[str, np.ndarray]
    full: np.ndarray
    matrix: np.ndarray
    kept_rows: np.ndarray
    row_of: np.ndarray
    column_of: np.ndarray
    share: np.ndarray

    def lift_upper(self, left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
        """Factors of the input from factors of the reduced matrix."""
        return {"U": left[self.row_of], "W": right[:, self.column_of] * self.share}

    def lift_lower(self, right: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """R and C of the input from those of the reduced matrix (R is constant on merged columns)."""
        c = np.zeros((len(self.column_of), len(self.row_of)))
        c[:, self.kept_rows] = weights[self.column_of]
        return {"R": right[self.column_of], "C": c}

    def lift_summing(self, right: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """R (constant on merged columns) and P (zero on dropped rows) of the input."""
        p = np.zeros((1, len(self.row_of)))
        p[:, self.kept_rows] = weights
        return {"R": right[self.column_of], "P": p}


def target(matrix: "ArrayLike | Logits") -> Target:
    """Validate and reduce.

    Raises:
        ValueError: not a matrix, empty, NaN or infinite, negative, or a row that does not sum to 1.
    """
    if isinstance(matrix, Logits):
        logits = _matrix(matrix.array, "logits")
        if np.isnan(logits).any() or (logits == np.inf).any():
            raise ValueError("logits have NaN or +inf entries: only -inf (masked) is allowed.")
        top = logits.max(1, keepdims=True)
        if (top == -np.inf).any():
            raise ValueError(f"row {int(top.argmin())} of the logits is masked throughout: drop it.")
        raw = np.exp(logits - top)
        return _reduce({"logits": logits}, raw / raw.sum(1, keepdims=True))
    full = _matrix(matrix, "A")
    if not np.isfinite(full).all():
        row, column = np.argwhere(~np.isfinite(full))[0]
        raise ValueError(f"A[{row}, {column}] is not finite: remove it or pass Logits.")
    if (full < 0).any():
        row, column = np.argwhere(full < 0)[0]
        raise ValueError(
            f"A[{row}, {column}] is negative ({full[row, column]:.3g}): attention weights are not; "
            "pass Logits (--key logits) if these are logits."
        )
    off = full.sum(1) - 1
    worst = int(np.abs(off).argmax())
    if abs(off[worst]) > ROW_SUM_TOLERANCE:
        raise ValueError(
            f"row {worst} of A sums to {1 + off[worst]:.9g}, off 1 by {abs(off[worst]):.3g}: "
            "divide each row by its sum (--normalize on the command line)."
        )
    return _reduce({"attention": full}, full)


def _matrix(array: ArrayLike, name: str) -> np.ndarray:
    try:
        values = np.asarray(array)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular matrix ({error}).") from None
    if values.ndim != 2 or values.size == 0 or values.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be a non-empty real (m, N) matrix, got {values.dtype} of shape {values.shape}."
        )
    return values.astype(np.float64)


def _reduce(subject: dict[str, np.ndarray], full: np.ndarray) -> Target:
    kept_rows, row_of = _groups(full)
    rows = full[kept_rows]
    mass = rows.sum(0)
    present = np.flatnonzero(mass > 0)
    _, group = _groups((rows[:, present] / mass[present]).T)
    matrix = np.zeros((len(rows), group.max() + 1))
    np.add.at(matrix.T, group, rows[:, present].T)
    column_of, share = np.zeros(full.shape[1], int), np.zeros(full.shape[1])
    column_of[present] = group
    share[present] = mass[present] / matrix.sum(0)[group]
    return Target(subject, full, matrix, kept_rows, row_of, column_of, share)


def _groups(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Representatives of equal rows, and the group each row belongs to.

    Equal rows have equal projections on one fixed direction, so only neighbours in that order are
    compared in full.
    """
    direction = np.random.default_rng(0).normal(size=rows.shape[1])
    order = np.argsort(rows @ direction, kind="stable")
    group = np.zeros(len(rows), int)
    kept: list[int] = []
    for i in order:
        if not kept or np.abs(rows[i] - rows[kept[-1]]).max() > SAME:
            kept.append(int(i))
        group[i] = len(kept) - 1
    return np.array(kept), group
