"""The sphere law in the continuum: r_eps = Theta((1 + beta)^((d-1)/2)), with both ends explicit."""

import math
from dataclasses import dataclass

import numpy as np
from flint import arb, ctx

from ._canonical import PRECISION, estimate_l1_error, l1_error, polynomial_dimension

LEAST_EPS = 1e-12


@dataclass(frozen=True)
class SphereBracket:
    """Certified bracket on the eps-rank of self-attention over the uniform sphere.

    Attributes:
        lower, upper: ranks; every kernel of rank below ``lower`` errs by more than ``eps``, and some
            kernel of rank ``upper`` errs by at most ``eps``.
        lower_degree: harmonics up to this degree carry the lower end (-1: none).
        upper_degree: degree of the polynomial behind the upper end (-1: the zero kernel).
        upper_error: the enclosed L1 error of that polynomial, at most ``eps``.
    """

    dim: int
    beta: float
    eps: float
    lower: int
    upper: int
    lower_degree: int
    upper_degree: int
    upper_error: float

    def __repr__(self) -> str:
        return (
            f"SphereBracket({self.lower} <= r_eps <= {self.upper}; "
            f"d={self.dim}, beta={self.beta:g}, eps={self.eps:g}, certified)"
        )


def sphere_bracket(d: int, beta: float, eps: float) -> SphereBracket:
    """Bracket the eps-rank of the kernel exp(beta <x, y>)/Z on the unit sphere of R^d.

    The kernel acts on the uniform probability measure; r_eps is the least rank of a kernel B with
    sup_x int |K(x, y) - B(x, y)| dy <= eps. This is the limit of many uniform points ([I]); it
    bounds no finite set of points by itself.

    *Lower end.* By Funk and Hecke, K has the eigenvalue lambda_l =
    I_{l+d/2-1}(beta)/I_{d/2-1}(beta) on the N_l harmonics of degree l. Since ||x||_1 >= ||H x||_2
    for any kernel H with unit columns, the error of rank k is at least the l2 tail of the singular
    values of K H beyond k. The zonal H with coefficients proportional to 1/lambda_l for l <= L
    makes them equal, so r_eps >= sum_{l<=L} N_l (1 - eps^2/lambda_l^2), and every term that is
    positive is kept.

    *Upper end.* A polynomial of degree L in <x, y> has rank sum_{l<=L} N_l; the error of the best
    one in L1 is int f s w with the canonical sign function s, see ``attnlab.laws._canonical``.

    Both ends are rigorous including rounding: Bessel ratios by a contracting interval recurrence,
    integrals and orthogonality defects in Arb at 128 bits, ``beta`` and ``eps`` taken as the exact
    doubles given. Float64 only chooses L.

    Arguments:
        d: dimension of the ambient space, at least 2.
        beta: inverse temperature, finite and >= 0 (points have norm 1).
        eps: error in max-row l1 norm, at least 1e-12 (the degree is chosen in float64); from 1 on
            the bracket is [0, 0].

    Raises:
        ValueError: an argument out of range.

    >>> sphere_bracket(3, 16.0, 0.1)
    SphereBracket(57 <= r_eps <= 121; d=3, beta=16, eps=0.1, certified)
    """
    if not isinstance(d, int | np.integer) or d < 2:
        raise ValueError(f"d must be an integer >= 2, got {d!r}: the sphere of R^d needs two dimensions.")
    if not (math.isfinite(beta) and beta >= 0):
        raise ValueError(f"beta must be finite and >= 0, got {beta}: use an inverse temperature.")
    if not (math.isfinite(eps) and eps >= LEAST_EPS):
        raise ValueError(f"eps must be finite and >= {LEAST_EPS:g}, got {eps}: it is an l1 error, e.g. 0.1.")
    d, beta, eps = int(d), float(beta), float(eps)
    lower, lower_degree = _lower(d, beta, eps)
    upper_degree, error = _upper_degree(d, beta, eps)
    upper = polynomial_dimension(upper_degree, d)
    return SphereBracket(d, beta, eps, lower, upper, lower_degree, upper_degree, error)


def _lower(d: int, beta: float, eps: float) -> tuple[int, int]:
    with ctx.workprec(PRECISION):
        total, degree = arb(0), -1
        for l, eigenvalue in enumerate(_eigenvalues(d, beta)):
            share = 1 - (arb(eps) / eigenvalue) ** 2
            if not share > 0:
                break
            size = polynomial_dimension(l, d) - polynomial_dimension(l - 1, d)
            total, degree = total + size * share, l
        return max(0, int(total.lower().ceil().unique_fmpz() or 0)), degree


def _eigenvalues(d: int, beta: float) -> list[arb]:
    """Enclosures of I_{l+v}(beta)/I_v(beta), v = d/2 - 1, for l = 0, 1, ...

    r_m = I_{m+1}/I_m lies in (0, 1) and r_{m-1} = 1/(2m/beta + r_m); running down from far out
    with the ball [0, 1] shrinks the ball by r^2 at each step, so the start is forgotten.
    """
    count = math.ceil(math.sqrt(80 * beta)) + 40
    if beta == 0:
        return [arb(1)] + [arb(0)] * count
    order, inverse = arb(d - 2) / 2, 1 / arb(beta)
    ratio, ratios = arb(0.5, 0.5), []
    for l in range(count, 0, -1):
        ratio = 1 / (2 * (order + l) * inverse + ratio)
        ratios.append(ratio)
    values = [arb(1)]
    for ratio in reversed(ratios):
        values.append(values[-1] * ratio)
    return values


def _upper_degree(d: int, beta: float, eps: float) -> tuple[int, float]:
    """Least degree whose certified L1 error is at most eps (float64 bisection, then Arb)."""
    low, high = -1, 2 + math.ceil(2 * math.sqrt(beta))
    if eps >= 1:
        return -1, 1.0
    while estimate_l1_error(high, d, beta) > eps:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if estimate_l1_error(middle, d, beta) > eps else (low, middle)
    for degree in range(high, high + 4):  # rounding can make the first one a hair too large
        error = l1_error(degree, d, beta)
        if error <= arb(eps):
            return degree, math.nextafter(float(error.upper()), math.inf)
    raise RuntimeError(
        f"The canonical nodes for d={d}, degree {high} did not converge: use a smaller d or beta."
    )
