"""Low-rank approximations that stand on their own: factors U (m, k), W (k, N) of explicit form."""

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike


def truncated_svd(matrix: ArrayLike, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The best rank-k approximation in l2, which is what people use today.

    >>> u, w = truncated_svd(np.eye(3), 3)
    >>> bool(np.allclose(u @ w, np.eye(3)))
    True
    """
    u, s, vt = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    return u[:, :rank] * s[:rank], vt[:rank]


def row_cover(matrix: ArrayLike, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Every row replaced by the nearest (l1) of k chosen rows, chosen farthest first (k-centre).

    The largest row error is at most twice that of the best k centres (Gonzalez, 1985).

    >>> u, w = row_cover(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 2)
    >>> w.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return k_centre(np.asarray(matrix, np.float64), most=rank)


def k_centre(a: np.ndarray, *, most: int | None = None, within: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """``row_cover`` with ``most`` rows, or as many as bring every row within ``within`` (l1)."""
    centres, nearest = [0], np.zeros(len(a), int)
    distance = np.abs(a - a[0]).sum(1)
    while len(centres) < most if most is not None else distance.max() > within:
        centres.append(int(distance.argmax()))
        fresh = np.abs(a - a[centres[-1]]).sum(1)
        nearest = np.where(fresh < distance, len(centres) - 1, nearest)
        distance = np.minimum(distance, fresh)
    return np.eye(len(centres))[nearest], a[centres]


def cross(matrix: ArrayLike, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """A cross (CUR) approximation: k pivoted columns, k pivoted rows, and the least-squares middle.

    >>> u, w = cross(np.ones((3, 3)) / 3, 1)
    >>> bool(np.allclose(u @ w, 1 / 3))
    True
    """
    a = np.asarray(matrix, np.float64)
    columns = scipy.linalg.qr(a, pivoting=True, mode="r")[-1][:rank]
    rows = scipy.linalg.qr(a.T, pivoting=True, mode="r")[-1][:rank]
    middle = np.linalg.pinv(a[:, columns]) @ a @ np.linalg.pinv(a[rows])
    return a[:, columns] @ middle, a[rows]


def svd_bracket(matrix: ArrayLike, eps: float) -> tuple[int, int]:
    """The bracket on r_eps that the singular values give: the baseline, plain float64, not certified.

    Lower: the least k whose tail (sum over j > k of s_j^2 / m)^(1/2) is at most eps. Upper: the least k
    whose truncated SVD is within eps in every row (l1).

    >>> svd_bracket(np.eye(4), 0.4)
    (4, 4)
    """
    a = np.asarray(matrix, np.float64)
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    tails = np.sqrt(np.append(np.cumsum((s**2)[::-1])[::-1], 0.0) / len(a))
    errors = [np.abs(a - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max() for k in range(len(s))] + [0.0]
    return int(np.argmax(tails <= eps)), int(np.argmax(np.array(errors) <= eps))
