"""The 2-summing lower bound: a singular-value tail, reweighted so that it sees the row l1 norm.

For p in the simplex and H with unit columns, a_{k+1}^2 >= sum over j > k of s_j(diag(sqrt p) A H')^2,
because ||x||_1 >= ||H x||_2 and a maximum over rows is at least a mean. Uniform p and H = I give the
plain SVD tail that people use today; p and H are then improved by L-BFGS on the host. On every matrix
of ``benchmarks/rank.py`` it stays below the Bernstein bound of ``_lower``; it needs one small SVD per
step and no restart, and is a different proof (certificate kind rank-lower-psd).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize


def svd_tail(matrix: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The plain SVD tail as a witness (R, P) of kind rank-lower-psd: R = I (N, N), P uniform (1, m).

    >>> r, p = svd_tail(np.eye(4))
    >>> r.shape, p.shape
    ((4, 4), (1, 4))
    """
    m, n = np.shape(matrix)
    return np.eye(n), np.full((1, m), 1 / m)


def two_summing(matrix: ArrayLike, rank: int, steps: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Improve (p, H) from the plain tail.

    Arguments:
        matrix: (m, N) row-stochastic.
        rank: the k of a_{k+1}; k < min(m, N).
        steps: L-BFGS iterations.

    Returns:
        R = H' (N, N) and P (1, m), a witness of kind rank-lower-psd.

    >>> r, p = two_summing(np.eye(4), 2)
    >>> bool(np.allclose(p, 0.25))
    True
    """
    a = np.asarray(matrix, np.float64)
    m, n = a.shape

    def unpack(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        p = np.exp(x[:m] - x[:m].max())
        raw = x[m:].reshape(n, n)
        length = np.sqrt((raw * raw).sum(0))
        return p / p.sum(), raw / length, length

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        p, h, length = unpack(x)
        root = np.sqrt(p)[:, None]
        u, s, vt = np.linalg.svd(root * (a @ h.T), full_matrices=False)
        tail = (u[:, rank:] * s[rank:]) @ vt[rank:]
        value = float((s[rank:] ** 2).sum()) + 1e-300
        slope_p = (tail * tail).sum(1)  # p_i times the derivative
        slope_h = 2 * tail.T @ (root * a)
        slope_h = (slope_h - h * (h * slope_h).sum(0)) / length
        gradient = np.concatenate([slope_p - p * slope_p.sum(), slope_h.ravel()])
        return -np.log(value), -gradient / value

    start = np.concatenate([np.zeros(m), np.eye(n).ravel()])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": steps})
    p, h, _ = unpack(found.x)
    return h.T, p[None, :]
