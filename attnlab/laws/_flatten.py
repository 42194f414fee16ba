"""Lower ends of the eps-rank from a flattened spectrum, the finite twin of the sphere's closed form.

For weights p on rows and c on columns let diag(p)^(1/2) A diag(c) = U S V'. With R = diag(c) V_s S_s^-1 the
matrix (A R)' diag(p) (A R) is the identity, so the error of every rank k < s is at least sqrt(t) once
(s - k) - t max_j |r_j|^2 >= 0 (trace and Ky Fan; kind ``rank-lower-psd`` with one p for all j). Hence

    r_eps >= s - eps^2 max_j |r_j|^2.

On the sphere the rows r_j have one length and this is sum_l N_l (1 - eps^2/lambda_l^2). On scattered points
c is moved until they nearly do, and p towards the rows that matter, as in optimal design.
"""

import math

import numpy as np
import scipy.linalg

from ..certify import Certificate

ROUNDS, PATIENCE = 10, 3  # and rounds without progress after which a cut is given up
LEAST_SHARE = 1e-5  # smaller singular values are lost in the Gram matrix
CUTS = (0.7, 0.9, 1.1, 1.4)  # singular values kept, in units of eps times the largest
COLUMN_POWER, ROW_POWER = 0.25, 0.5


def flattened(matrix: np.ndarray, eps: float) -> Certificate | None:
    """The best certificate found that r_eps(matrix) exceeds its claimed rank, or None.

    Arguments:
        matrix: row-stochastic, shape (m, N), up to about a thousand rows and columns.
        eps: the claimed error is above it.
    """
    best, level, found = 1, eps * (1 + 1e-7), None
    for cut in CUTS:
        rows, columns = np.full(len(matrix), 1 / len(matrix)), np.ones(matrix.shape[1])
        size, reached, stale = 0, 0, 0
        for _ in range(ROUNDS):
            weighted = np.sqrt(rows)[:, None] * matrix * columns
            u, s, v = _leading(weighted, size, cut * eps)
            size = len(s)
            right = columns[:, None] * v / s
            lengths = (right**2).sum(1)
            proved = math.ceil(size - level**2 * lengths.max() * (1 + 1e-9))
            reached, stale = max(reached, proved), 0 if proved > reached else stale + 1
            if stale == PATIENCE:
                break
            if proved > best:
                best, found = proved, (rows.copy(), right)
            columns = (
                columns * np.clip(lengths.mean() / np.maximum(lengths, 1e-300), 1e-3, 1e3) ** COLUMN_POWER
            )
            leverage = (u**2).sum(1) / rows
            rows = rows * leverage**ROW_POWER
            rows /= rows.sum()
    if found is None:
        return None
    claim = {"rank": best - 1, "error": eps * (1 + 5e-8)}
    return Certificate("rank-lower-psd", claim, {"R": found[1], "P": found[0][None]}, {"attention": matrix})


def _leading(matrix: np.ndarray, size: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U (m, s), S (s,), V (N, s) for the ``size`` largest singular values, or if 0 those above ``share``
    of the largest, from the Gram matrix: they are far from its rounding, and only a few are needed."""
    gram = matrix.T @ matrix
    last = len(gram) - 1
    if not size:
        values = scipy.linalg.eigvalsh(gram)
        size = max(int((values > max(share, LEAST_SHARE) ** 2 * values[-1]).sum()), 1)
    squares, vectors = scipy.linalg.eigh(gram, subset_by_index=(last + 1 - size, last))
    s = np.sqrt(np.maximum(squares[::-1], 1e-300))
    return (matrix @ vectors[:, ::-1]) / s, s, vectors[:, ::-1]
