"""Checkers for the error profile a_{k+1} = inf over rank(B) <= k of max_i ||A_i - B_i||_1.

Every checker recomputes a safe bound from subject and witness and compares the claim with it.
A factored subject is read in blocks of rows; its lower witnesses may speak about an aggregate
A[rows] P, given by the arrays ``rows`` (indices) and ``labels`` (the cluster of every column), which
cannot have a larger a_{k+1} than A.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ._balls import Balls, FloatBalls, down, exact_in, gamma
from ._errors import InvalidWitness
from ._factored import Factored, is_factored, read_factored
from ._rank_factored import lower_subject, streamed_error, streamed_image
from ._subject import arb_precision, matrix_of
from ._verdict import Verdict

Named = Mapping[str, np.ndarray]


def check_upper(claim: Mapping[str, Any], witness: Named, subject: Named, arb: bool) -> Verdict:
    """Factors U (m, k) and W (k, N): the measured maximum row l1 error of A - U W, rounded up."""
    rank, error = claimed(claim)
    with arb_precision():
        exact = exact_in(arb)
        a = read_factored(subject) if is_factored(subject) else matrix_of(subject, arb)
        m, n = a.shape
        if rank == 0:
            bound = 1.0  # B = 0, and the rows of A sum to 1 exactly
        elif rank >= min(m, n):
            bound = 0.0  # B = A
        else:
            u, w = real(witness, "U", (m, rank)), real(witness, "W", (rank, n))
            if isinstance(a, Factored):
                bound = streamed_error(a, u, w, arb)
            else:
                bound = float((a - exact(u) @ exact(w)).row_sums()[1].max())
    holds = bound <= error
    return Verdict(
        holds,
        f"A matrix of rank at most {rank} is within {bound:.6g} of A in every row (l1), "
        f"so r_eps(A) <= {rank} for every eps >= {bound:.6g}"
        + ("." if holds else f"; the claimed error {error:.6g} is not proved."),
        bound,
        error - bound,
    )


def check_lower(claim: Mapping[str, Any], witness: Named, subject: Named, arb: bool) -> Verdict:
    """R (N, k+1) and C (N, m), or L (k+1, m) with C = R (L A R)^{-1} L, such that C A R is nearly R.

    Proof. Let rank(B) <= k. Some x = R y != 0 has B x = 0, so x = C A x + (R - C A R) y
    = C (A - B) x + E y. With X R = I - D, ||D|| < 1: ||y|| <= ||X|| ||x|| / (1 - ||D||). Hence
    ||A - B|| >= (1 - ||E|| ||X|| / (1 - ||D||)) / ||C||, all norms l_inf -> l_inf. The same X shows
    that R has full column rank. It bounds the Bernstein number of A from below.
    """
    rank, error = claimed(claim)
    with arb_precision():
        if not is_factored(subject):
            a = matrix_of(subject, arb)
            bound = 1.0 if rank == 0 else _bernstein(a, rank, witness, arb)
        else:
            a = read_factored(subject)
            bound = 1.0 if rank == 0 else _bernstein(lower_subject(a, witness, arb), rank, witness, arb)
    return lower_verdict(rank, error, bound)


def _bernstein(a: Balls, rank: int, witness: Named, arb: bool) -> float:
    exact = exact_in(arb)
    m, n = a.shape
    s = rank + 1
    r_mid = real(witness, "R", (n, s))
    if "C" in witness:
        c_mid = real(witness, "C", (n, m))
    else:
        left = real(witness, "L", (s, m))
        c_mid = r_mid @ _inverse(left @ mid(a) @ r_mid) @ left
    r, c = exact(r_mid), exact(c_mid)
    e_norm = (r - c @ (a @ r)).norm()
    x_mid = _inverse(r_mid.T @ r_mid) @ r_mid.T
    x = exact(x_mid)
    d_norm = (exact(np.eye(s)) - x @ r).norm()
    c_norm = c.norm()
    if not (d_norm < 0.5 and c_norm > 0 and np.isfinite(c_norm)):
        raise InvalidWitness("R is not safely of full column rank.")
    loss = e_norm * x.norm() / (1 - d_norm) * (1 + 1e-12)
    return down(down((1 - loss) * (1 - 1e-15)) / c_norm * (1 - 1e-15))


def check_lower_psd(claim: Mapping[str, Any], witness: Named, subject: Named, arb: bool) -> Verdict:
    """R (N, s), s >= k+1, and P (1, m) or (N, m) with rows in the simplex.

    With t = error^2, if for every j the s-k smallest eigenvalues of
    X_j = (A R)' diag(p_j) (A R) - t r_j' r_j sum to at least 0, then a_{k+1} >= error.
    Proof. Let rank(B) <= k and Pi project onto s-k dimensions of ker(B R); K = R Pi R' has B K = 0.
    With E = A - B: (A K A')_ii = E_i K E_i' <= ||E_i||_1^2 max_j K_jj. At the maximising j, Ky Fan
    gives 0 <= tr(Pi X_j) = sum_i p_ji (A K A')_ii - t K_jj <= (||E||^2 - t) K_jj, and K_jj > 0.
    """
    rank, error = claimed(claim)
    with arb_precision():
        exact = exact_in(arb)
        if not is_factored(subject):
            a = matrix_of(subject, arb)
        elif {"rows", "labels"} & set(witness):
            a = lower_subject(read_factored(subject), witness, arb)
        else:
            a = read_factored(subject)
        m, n = a.shape
        r_mid = real(witness, "R", (n, None))
        s = r_mid.shape[1]
        if s <= rank:
            raise InvalidWitness(f"R must have at least {rank + 1} columns for rank {rank}, not {s}.")
        p = real(witness, "P", (None, m))
        if p.shape[0] not in (1, n) or (p < 0).any():
            raise InvalidWitness("P must be one or N rows of non-negative weights.")
        # Weights that sum to 1 + delta only scale the bound; normalise by an upper bound instead.
        p_sum = p.sum(1).max() * (1 + gamma(m + 2))
        if not p_sum > 0:
            raise InvalidWitness("P has a row of zeros.")
        x = exact(_inverse(r_mid.T @ r_mid) @ r_mid.T)
        if not (exact(np.eye(s)) - x @ exact(r_mid)).norm() < 0.5:
            raise InvalidWitness("R is not safely of full column rank.")
        t = error * error
        ar = streamed_image(a, r_mid, arb) if isinstance(a, Factored) else a @ exact(r_mid)
        slack = np.inf
        gram, rows = None, range(n)
        if isinstance(a, Factored) and p.shape[0] == 1:
            # tr(Pi X_j) >= tr(Pi G) - t |r_j|^2: one eigenvalue sum serves every j for which that is >= 0.
            gram = ar.transposed @ ar.scale_rows(p[0])
            sizes = (r_mid**2).sum(1) * (1 + 1e-12)
            least = _smallest_sum(gram, s - rank, exact) - t * sizes * (1 + 1e-14)
            done = (least >= 0) & (sizes > 0)
            slack = float((least[done] / sizes[done]).min(initial=np.inf))
            rows = np.flatnonzero(~done & (sizes > 0))
        for j in rows:
            if gram is None or p.shape[0] == n:
                gram = ar.transposed @ ar.scale_rows(p[j] if p.shape[0] == n else p[0])
            row = exact(r_mid[j : j + 1])
            xj = gram - (row.transposed.scale_rows(np.full(s, t * (1 + 4e-16))) @ row)
            size = float((r_mid[j] ** 2).sum())
            if size > 0:
                slack = min(slack, _smallest_sum(xj, s - rank, exact) / (size * (1 + 1e-12)))
            if slack < 0:
                return lower_verdict(rank, error, 0.0)
        bound = down(np.sqrt((t + slack) * (1 - 1e-14) / p_sum) * (1 - 1e-15))
    return lower_verdict(rank, error, float(bound))


def _smallest_sum(x: Balls, count: int, exact: Callable[[np.ndarray], Balls]) -> float:
    """A lower bound on the sum of the ``count`` smallest eigenvalues of a symmetric ball matrix.

    With X = V D V' + F and ||V'V - I|| <= d, Ostrowski's theorem moves each eigenvalue of V D V' by
    a factor in [1 - d, 1 + d], and Ky Fan's the sum by at most count ||F||. The infinity norm of a
    symmetric matrix bounds its 2-norm; symmetrising F cannot increase that.
    """
    middle = mid(x)
    values, vectors = np.linalg.eigh((middle + middle.T) / 2)
    v = exact(vectors)
    d = (exact(np.eye(len(values))) - v.transposed @ v).norm()
    f = x - v.scale_rows(np.ones(len(values))) @ v.transposed.scale_rows(values)
    f_norm = max(f.norm(), f.transposed.norm())
    smallest = values[:count]
    return float(smallest.sum() - count * f_norm - d * np.abs(smallest).sum() * 2 - 1e-300) - abs(
        float(smallest.sum())
    ) * gamma(count + 4)


def lower_verdict(rank: int, error: float, bound: float) -> Verdict:
    """The verdict on the claim a_{rank+1} >= error, given a proved lower bound."""
    holds = bound >= error
    said = f"Every matrix of rank at most {rank} differs from A by at least {bound:.6g} in some row (l1)"
    if holds:
        said += f", so r_eps(A) >= {rank + 1} for every eps < {bound:.6g}."
    else:
        said += f"; the claimed error {error:.6g} is not proved."
    return Verdict(holds, said, bound, bound - error)


def claimed(claim: Mapping[str, Any]) -> tuple[int, float]:
    """The rank and error claimed, validated."""
    rank, error = claim["rank"], claim["error"]
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
        raise InvalidWitness(f"claim rank must be a non-negative integer, not {rank!r}.")
    if isinstance(error, bool) or not isinstance(error, int | float) or not 0 <= error < np.inf:
        raise InvalidWitness(f"claim error must be a finite non-negative number, not {error!r}.")
    return rank, float(error)


def real(witness: Named, name: str, expected: tuple[int | None, ...]) -> np.ndarray:
    """A finite float64 witness array of the expected shape (``None`` = any)."""
    if name not in witness:
        raise InvalidWitness(f"The witness array {name} is missing.")
    array = witness[name]
    fits = array.ndim == len(expected) and all(
        e is None or e == a for e, a in zip(expected, array.shape, strict=True)
    )
    if not fits or array.dtype.kind not in "fiu":
        raise InvalidWitness(f"witness {name} must be real of shape {expected}, not {array.shape}.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidWitness(f"witness {name} has NaN or infinite entries.")
    return array


def mid(x: Balls) -> np.ndarray:
    """Float64 midpoints; used only to propose, never to prove."""
    if isinstance(x, FloatBalls):
        return x.mid
    lower, upper = x.entry_bounds()
    return (lower + upper) / 2


def _inverse(matrix: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        raise InvalidWitness("A witness matrix that must be invertible is singular.") from None
