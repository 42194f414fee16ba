"""Lower search: a subspace on which A is far from degenerate (Bernstein numbers).

For R (N, k+1) and C (N, m) with C A R = R, every B of rank at most k has
max_i ||A_i - B_i||_1 >= 1 / max_j ||C_j||_1. With any L (k+1, m) and Z (N, m),
C = Z + (R - Z A R) (L A R)^{-1} L is such a C, and every one has this form. The search minimises
max_j ||C_j||_1 over L, R and Z together; the inverse is tracked by Newton-Schulz, so a step is a
handful of matrix products.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from scipy.optimize import linprog

from ._descend import Problem, descend, smooth_max_row_sum

RATES = (0.03, 0.03, 0.03, 0.06)  # step sizes relative to the parameters; start number picks one in turn


class Pencil(Problem):
    """Minimise max_j ||C_j||_1 over (L, R, Z); the state is the running inverse of L A R."""

    def evaluate(self, params, state, matrix, mask, smoothing):
        left, right, free = params
        image = matrix @ right
        eye = jnp.eye(mask.shape[0], dtype=matrix.dtype)
        pencil = left @ image + jnp.diag(1 - mask)
        inverse = jax.lax.stop_gradient(state @ (2 * eye - pencil @ state))
        # One more Newton step: its derivative at a fixed start is that of the true inverse.
        inverse = 2 * inverse - inverse @ (pencil @ inverse)
        residual = jnp.abs(eye - jax.lax.stop_gradient(pencil @ inverse)).max()
        smooth, exact = smooth_max_row_sum(free + (right - free @ image) @ (inverse @ left), smoothing)
        return smooth, (exact, residual < 1e-3, jax.lax.stop_gradient(inverse))


def search_lower(
    matrix: np.ndarray, ranks: np.ndarray, starts: np.ndarray, steps: int, dtype, rng, width: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Search one witness (R, C) per lane.

    Arguments:
        matrix: (m, N) float64.
        ranks: (lanes,) the k of a_{k+1}; every k < min(m, N).
        starts: (lanes,) which kind of start, see ``_Basis.start``.
        steps: descent steps.
        dtype: precision of the search.
        rng: NumPy generator of the random starts.
        width: padded k + 1.

    Returns:
        For every lane R (N, k+1) and C (N, m) in float64, C from a true inverse on the host; and the
        ``LaneCode`` of every lane.
    """
    m, n = matrix.shape
    lanes = len(ranks)
    left, right = np.zeros((lanes, width, m)), np.zeros((lanes, n, width))
    free, mask = np.zeros((lanes, n, m)), np.zeros((lanes, width))
    inverse = np.tile(np.eye(width), (lanes, 1, 1))
    scales = np.zeros((3, lanes))
    basis = _Basis(matrix)
    for i, (rank, start) in enumerate(zip(ranks, starts, strict=True)):
        s = rank + 1
        l0, r0 = basis.start(s, start, rng)
        c0 = r0 @ l0
        left[i, :s], right[i, :, :s], mask[i, :s] = l0, r0, 1
        scales[:, i] = [rms(l0), rms(r0), rms(c0)]
        if start % 2:
            free[i] = 0.3 * scales[2, i] * rng.normal(size=(n, m))
    rates = np.take(RATES, starts % len(RATES))
    result = descend(Pencil(), matrix, (left, right, free), inverse, tuple(scales), mask, rates, steps, dtype)
    witnesses = []
    for i, rank in enumerate(ranks):
        l0, r0, z0 = (np.asarray(x[i], np.float64) for x in result.params)
        witnesses.append(complete(matrix, l0[: rank + 1], r0[:, : rank + 1], z0))
    return witnesses, result.code


def complete(matrix: np.ndarray, left, right, free) -> tuple[np.ndarray, np.ndarray]:
    """R and C = Z + (R - Z A R)(L A R)^{-1} L in float64; R scaled to orthonormal columns."""
    right = np.linalg.qr(right)[0]
    image = matrix @ right
    return right, free + (right - free @ image) @ np.linalg.lstsq(left @ image, left, rcond=None)[0]


def polish_lower(matrix: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The best C for this R in the rows that limit the bound: min ||c||_1 with c A R = r_j (an LP).

    Rows are solved worst first, until the worst row is one already solved.
    """
    weights = weights.copy()
    image = (matrix @ right).T
    system = np.hstack([image, -image])
    solved = np.zeros(len(right), bool)
    for _ in range(len(right)):
        sums = np.abs(weights).sum(1)
        j = int(sums.argmax())
        if solved[j]:
            break
        solved[j] = True
        m = matrix.shape[0]
        answer = linprog(np.ones(2 * m), A_eq=system, b_eq=right[j], bounds=(0, None), method="highs")
        if answer.status == 0 and answer.fun < sums[j]:
            weights[j] = answer.x[:m] - answer.x[m:]
    return weights


class _Basis:
    """Factorisations shared by all starts."""

    def __init__(self, matrix: np.ndarray):
        self.matrix = matrix
        self.full = min(matrix.shape)
        self.u = np.linalg.svd(matrix)[0]
        self.pivots = scipy.linalg.qr(matrix.T, pivoting=True, mode="r")[-1]

    def start(self, s: int, kind: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """L and R with L A R = I, balanced so that both have the same Gram spectrum.

        Kind 0 takes the first s left singular vectors and 3 the first s pivoted rows. The others leave
        the basin those two share, where degenerate spectra trap them: singular vectors with a few of
        the first skipped (1, 4, 7, ...), singular vectors of randomly weighted rows (2, 5, 8, ...), and
        perturbed pivoted rows (6, 9, ...).
        """
        m = self.matrix.shape[0]
        if kind == 0:
            left = self.u[:, :s].T
        elif kind % 3 == 1:
            pool = min(s + int(rng.integers(1, 6)), self.full)
            left = self.u[:, np.sort(rng.permutation(pool)[:s])].T
        elif kind % 3 == 2:
            root = np.sqrt(rng.dirichlet(np.ones(m)))
            left = np.linalg.svd(root[:, None] * self.matrix)[0][:, :s].T * root
        else:
            left = np.eye(m)[self.pivots[:s]]
            if kind > 3:
                left = left + 0.3 / np.sqrt(m) * rng.normal(size=left.shape)
        right = np.linalg.pinv(left @ self.matrix)
        values, vectors = np.linalg.eigh(right.T @ right)
        values = np.maximum(values, values.max() * 1e-30)
        return (vectors * values**0.25) @ (vectors.T @ left), right @ (vectors * values**-0.25) @ vectors.T


def rms(x: np.ndarray) -> float:
    """Size of an entry."""
    return float(np.sqrt(np.mean(x * x)))
