"""Dimensions read off the intrinsic interaction, and explicit low-rank matrices built from one."""

from itertools import combinations_with_replacement
from math import factorial

import numpy as np
from numpy.typing import ArrayLike

from ..rank._constructions import k_centre
from ._intrinsic import _matrix, intrinsic
from ._residual import exact_tau, residual


def svd_dimension(attention: ArrayLike, tolerance: float) -> int:
    """The tolerance-indexed SVD dimension: the least r with tau(SVD_r(C)) <= tolerance ([I]).

    tau is that of the truncated SVD of the intrinsic interaction with the best column gauge, in
    float64. It need not fall at every step, so ranks are tried in order.

    Arguments:
        attention: shape (m, N), strictly positive.
        tolerance: l1 error, >= 0; 0 gives the numerical rank of C.

    >>> q = np.array([1.0, 0.0, -1.0])
    >>> a = np.exp(np.outer(q, q))
    >>> svd_dimension(a / a.sum(1, keepdims=True), 1e-9), svd_dimension(a, 2.0)
    (1, 0)
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be >= 0, got {tolerance}: it is an l1 error.")
    c = intrinsic(attention)
    u, s, vt = np.linalg.svd(c, full_matrices=False)
    floor = 1e-12 * (1 + s[0])  # what rounding leaves of an exact fit
    for rank in range(len(s)):
        if exact_tau(residual(c - (u[:, :rank] * s[:rank]) @ vt[:rank])) <= tolerance + floor:
            return rank
    return len(s)


def row_cover(attention: ArrayLike, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Factors U (m, k), W (k, N) that replace each row by the nearest of k chosen rows of A.

    Rows are chosen farthest first in l1 until all are within eps, so k is at most the covering number
    at eps/2; ``attnlab.rank.row_cover`` takes the rank instead. The pair is a witness of kind ``rank-upper``.

    >>> a = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> row_cover(a, 0.3)[1].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    a = _matrix(attention, "attention")
    if not eps > 0:
        raise ValueError(f"eps must be > 0, got {eps}: it is an l1 error.")
    return k_centre(a, within=eps)


def polynomial_factors(
    left: ArrayLike, right: ArrayLike, log_weights: ArrayLike, degree: int
) -> tuple[np.ndarray, np.ndarray]:
    """Factors U (m, k), W (k, N) of a polynomial approximation of softmax(X Y' + b), k = C(r+L, L).

    Rows of the softmax are pi_j exp(<x, y_j>) up to normalisation, and the Taylor polynomial of
    degree L of exp in <x, y> splits into the monomials of degree <= L in r variables. U holds those
    of x, divided by the approximate partition function, W those of y times the weights. With the
    gauge of ``factor_radius`` the argument stays within kappa, and L of the order of kappa
    suffices.

    The pair is a witness of kind ``rank-upper``: its error is measured there.

    Arguments:
        left, right: X of shape (m, r), Y of shape (N, r). log_weights: b of shape (N,).
        degree: L >= 0.

    >>> x = np.array([[0.1], [-0.1]])
    >>> u, w = polynomial_factors(x, x, np.zeros(2), 3)
    >>> u.shape, w.shape
    ((2, 4), (4, 2))
    """
    x, y = _matrix(left, "left"), _matrix(right, "right")
    b = np.asarray(log_weights, np.float64)
    if x.shape[1] != y.shape[1] or b.shape != (len(y),) or not np.isfinite(b).all():
        raise ValueError(
            f"left, right and log_weights must be finite of shapes (m, r), (N, r), (N,), got {x.shape}, "
            f"{y.shape}, {b.shape}."
        )
    if not isinstance(degree, int | np.integer) or degree < 0:
        raise ValueError(f"degree must be an integer >= 0, got {degree!r}.")
    u, w = _monomials(x, degree), _monomials(y, degree).T * np.exp(b - b.max())
    return u / (u @ w.sum(1))[:, None], w


def _monomials(x: np.ndarray, degree: int) -> np.ndarray:
    """Monomials of degree <= L, scaled so that <f(x), f(y)> is the Taylor sum of exp(<x, y>)."""
    columns = []
    for total in range(degree + 1):
        for powers in combinations_with_replacement(range(x.shape[1]), total):
            counts = np.bincount(powers, minlength=x.shape[1]) if powers else np.zeros(x.shape[1], int)
            scale = np.prod([float(factorial(c)) for c in counts])
            columns.append(np.prod(x**counts, axis=1) / np.sqrt(scale))
    return np.array(columns).T
