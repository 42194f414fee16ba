"""A floor on the cost of every retained interaction of a rank: is a void bound inherent?"""

import numpy as np
from numpy.typing import ArrayLike

from ._intrinsic import intrinsic
from ._residual import exact_tau

ROUNDS = 40
POWER = 0.5  # of the multiplicative update; 1 overshoots
UNIFORM = 1e-3  # share of uniform weights kept
SLACK = 1e-12  # relative, far above the rounding of the singular values


def tau_floor(attention: ArrayLike, rank: int) -> float:
    """A lower bound on tau(T) over all interactions T of at most this rank (float64, not certified).

    Where it is >= eps, the bound of [I] is void at this rank whatever T is retained; otherwise
    nothing follows.

    q(C - T) <= h means that some row constants u_i and column constants v_j bring every entry of
    C - T - u_i - v_j within h of 0. For weights p on rows and w on columns let Z be C centred by p and
    w and scaled, diag(p)^(1/2) (I - 1 p') C (I - w 1') diag(w)^(1/2). Centring removes the constants and
    cannot increase the weighted l2 norm, so Z is within h of a matrix of rank r in Frobenius norm and

        q(C - T)^2 >= sum_{j > r} s_j(Z)^2   (Eckart and Young).

    The weights are raised on rows and columns with large residuals, as in Lawson's algorithm.

    Arguments:
        attention: shape (m, N), strictly positive.
        rank: r >= 0; the floor is 0 from min(m, N) - 1 on.

    Raises:
        ValueError: zeros in ``attention``, or a rank that is not an integer >= 0.

    >>> q = np.array([1.0, 0.0, -1.0])
    >>> a = np.exp(np.outer(q, q))
    >>> tau_floor(a, 1), round(tau_floor(a, 0), 3)
    (0.0, 0.924)
    """
    if not isinstance(rank, int | np.integer) or rank < 0:
        raise ValueError(f"rank must be an integer >= 0, got {rank!r}.")
    c = intrinsic(attention)
    m, n = c.shape
    size = np.linalg.norm(c, 2)
    rows, columns, best = np.full(m, 1 / m), np.full(n, 1 / n), 0.0
    for _ in range(ROUNDS):
        z = c - rows @ c
        z = z - (z @ columns)[:, None]
        u, s, vt = np.linalg.svd(np.sqrt(rows)[:, None] * z * np.sqrt(columns), full_matrices=False)
        tail = s[rank:]
        level = float(tail @ tail)
        best = max(best, np.sqrt(level) - SLACK * (1 + size))
        if level <= (SLACK * (1 + size)) ** 2:
            break
        squares = ((u[:, rank:] * tail) @ vt[rank:]) ** 2
        rows = _raised(rows, squares.sum(1) / rows / level)
        columns = _raised(columns, squares.sum(0) / columns / level)
    return exact_tau(float(best))


def _raised(weights: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    weights = weights * ratios**POWER
    return (1 - UNIFORM) * weights / weights.sum() + UNIFORM / len(weights)
