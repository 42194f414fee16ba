"""Upper search: factors U (m, k), W (k, N) with a small largest row error max_i ||A_i - U_i W||_1."""

import numpy as np
from scipy.optimize import linprog

from ._descend import Problem, descend, smooth_max_row_sum

# Step sizes relative to the parameters; start number picks one in turn.
RATES = (0.01, 0.005, 0.0025, 0.0012)
PERTURBATION = 0.3  # of the starts, relative to the parameters


class Factors(Problem):
    """Minimise max_i ||A_i - U_i W||_1 over (U, W)."""

    def evaluate(self, params, state, matrix, mask, smoothing):
        left, right = params
        smooth, exact = smooth_max_row_sum(matrix - left @ right, smoothing)
        return smooth, (exact, exact == exact, state)


def search_upper(
    matrix: np.ndarray, ranks: np.ndarray, starts: np.ndarray, steps: int, dtype, rng, width: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Search one pair of factors per lane.

    Arguments as in ``search_lower``; start 0 is the truncated SVD, others perturb it (which pays). Where
    the SVD is already close, steps and perturbations are smaller, or they would wash its accuracy out.

    Returns:
        For every lane U (m, k), W (k, N) in float64; and its ``LaneCode``.
    """
    m, n = matrix.shape
    lanes = len(ranks)
    left, right = np.zeros((lanes, m, width)), np.zeros((lanes, width, n))
    scales = np.zeros((2, lanes))
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    for i, (rank, start) in enumerate(zip(ranks, starts, strict=True)):
        root = np.sqrt(s[:rank])
        left[i, :, :rank], right[i, :rank] = u[:, :rank] * root, root[:, None] * vt[:rank]
        scales[:, i] = [np.sqrt(np.mean(x * x)) for x in (left[i, :, :rank], right[i, :rank])]
        scales[:, i] *= _boldness(np.abs(matrix - left[i] @ right[i]).sum(1).max())
        if start:
            left[i, :, :rank] += PERTURBATION * scales[0, i] * rng.normal(size=(m, rank))
            right[i, :rank] += PERTURBATION * scales[1, i] * rng.normal(size=(rank, n))
    rates = np.take(RATES, starts % len(RATES))
    state = mask = np.ones((lanes, 1))
    result = descend(Factors(), matrix, (left, right), state, tuple(scales), mask, rates, steps, dtype)
    u, w = (np.asarray(x, np.float64) for x in result.params)
    return [(u[i, :, :rank], w[i, :rank]) for i, rank in enumerate(ranks)], result.code


def _boldness(error: float) -> float:
    """How far to move from a start of this error, 1 being the most: fitted to MiniLM heads, all ranks."""
    return min(1.0, 3 * error**0.75)


def polish_upper(matrix: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """For fixed W the best rows of U: each is an l1 regression (an LP), solved worst row first.

    It stops as soon as the worst row is one already solved.
    """
    left = left.copy()
    k, n = right.shape
    eye = np.eye(n)
    system = np.hstack([right.T, -right.T, eye, -eye])
    cost = np.concatenate([np.zeros(2 * k), np.ones(2 * n)])
    solved = np.zeros(len(matrix), bool)
    for _ in range(len(matrix)):
        errors = np.abs(matrix - left @ right).sum(1)
        i = int(errors.argmax())
        if solved[i]:
            break
        solved[i] = True
        answer = linprog(cost, A_eq=system, b_eq=matrix[i], bounds=(0, None), method="highs")
        if answer.status == 0:
            row = answer.x[:k] - answer.x[k : 2 * k]
            if np.abs(matrix[i] - row @ right).sum() < errors[i]:
                left[i] = row
    return left
