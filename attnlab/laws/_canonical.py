"""Best L1 approximation of an exponential by polynomials under a Gegenbauer weight.

Weight: ``w(t) = c (1 - t^2)^((d-3)/2)`` on [-1, 1], a probability density: the law of one
coordinate of a uniform point on the unit sphere of R^d. With ``t = cos(theta)`` it is ``c
sin(theta)^(d-2)``.

A sign function with exactly L + 1 changes in (-1, 1) that is orthogonal to all polynomials of
degree L is called canonical; its changes are the canonical nodes (zeros of T_{L+1} for d = 2, of
U_{L+1} for d = 3, and close to those of the Gegenbauer polynomial of index d - 2 in general). Let
f have a positive derivative of order L + 1 and let p interpolate f at the nodes. Then f - p
changes sign at the nodes and nowhere else, so ||f - p||_1 = |int f s w|, and by duality no
polynomial of degree L does better (Pinkus, "On L1-Approximation", Cambridge 1989).

What is certified is only the upper bound, for nodes that are only nearly canonical (``l1_error``).
"""

from itertools import pairwise
from math import comb

import numpy as np
from flint import acb, arb, ctx
from scipy.special import betainc, gammaln, roots_gegenbauer

PRECISION = 128  # bits; every Arb quantity below carries its own error bound
NEWTON_STEPS = 8  # from the Gegenbauer zeros three are enough in every case tried


def polynomial_dimension(degree: int, d: int) -> int:
    """Dimension of the polynomials of degree at most ``degree`` restricted to the sphere in R^d.

    >>> polynomial_dimension(2, 3)  # 1 + 3 + 5
    9
    """
    if degree < 0:
        return 0
    return comb(degree + d - 1, d - 1) + (comb(degree + d - 2, d - 1) if degree else 0)


def canonical_nodes(degree: int, d: int) -> np.ndarray:
    """The canonical nodes in (0, pi/2), increasing angles; the others are their mirror images.

    Newton's method on the moments of the sign function. A matrix of half the degree is factorised
    on the host. Accurate to about 1e-14, but nothing depends on it: ``l1_error`` measures the
    defect.
    """
    count = degree + 1
    half = count // 2
    if d == 2:
        return ((np.arange(1, count + 1) - 0.5) * np.pi / count)[:half]
    if d == 3:
        return (np.arange(1, count + 1) * np.pi / (count + 1))[:half]
    if half == 0:
        return np.zeros(0)
    index = d / 2 - 1
    theta = np.sort(np.arccos(roots_gegenbauer(count, d - 2)[0]))[:half]
    signs = 2.0 * (-1.0) ** np.arange(half)
    degrees = np.arange(count - 2, -1, -2)  # the other parity is orthogonal by symmetry
    scale = np.exp(_log_mass(index)), np.exp(_log_mass(index + 1))
    safe = np.maximum(degrees, 1)
    norm = np.sqrt(scale[0] * scale[1] / (safe * (safe + 2 * index)))
    for _ in range(NEWTON_STEPS):
        angles = np.append(theta, np.pi / 2)
        values = _orthonormal(np.cos(angles), degree, index)[degrees]
        slopes = _orthonormal(np.cos(angles), degree, index + 1)[np.maximum(degrees - 1, 0)]
        primitive = np.sin(angles) ** (2 * index + 1) * slopes * norm[:, None]
        primitive[degrees == 0] = 0.5 * betainc(index + 0.5, 0.5, np.sin(angles) ** 2)
        defect = 2 * (primitive[:, :half] @ signs + (-1.0) ** half * primitive[:, half])
        jacobian = 2 * scale[0] * np.sin(theta) ** (2 * index) * values[:, :half] * signs
        theta = theta - np.linalg.solve(jacobian, defect)
    return theta


def estimate_l1_error(degree: int, d: int, beta: float) -> float:
    """The least L1 error of exp(beta t)/Z by polynomials of this degree, in float64, not
    certified."""
    if degree < 0:
        return 1.0
    edges = _edges(canonical_nodes(degree, d), degree)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    centre, radius = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    angles = centre[:, None] + radius[:, None] * nodes
    density = np.exp(-2 * beta * np.sin(angles / 2) ** 2) * np.sin(angles) ** (d - 2)
    parts = (density @ weights) * radius
    return float(abs(parts @ (-1.0) ** np.arange(parts.size)) / parts.sum())


def l1_error(degree: int, d: int, beta: float) -> arb:
    """A certified upper bound (Arb) on the least L1 error of exp(beta t)/Z at this degree, Z = int.

    Let s be the sign function with changes at the computed nodes, p the interpolant of f = exp/Z
    there and D the projection of s on polynomials of degree L. All divided differences of exp are
    positive, so e = ||f - p||_1 = |int f s w - int p D w|. Since ||p||_2 <= sqrt(dim) ||p||_1 (the
    reproducing kernel of the zonal polynomials is at most its value at t = 1, dim =
    ``polynomial_dimension``) and ||p||_1 <= 1 + e, with eta = sqrt(dim) ||D||_2 this gives

        e <= (|int f s w| + eta) / (1 - eta).

    The integrals are Arb enclosures (adaptive Gauss-Legendre with a rigorous error bound), D comes
    from the closed-form primitives of Gegenbauer polynomials, and the float64 nodes are exact
    inputs.
    """
    if degree < 0:
        return arb(1)
    with ctx.workprec(PRECISION):
        nodes = canonical_nodes(degree, d)
        if not (np.isfinite(nodes).all() and (np.diff(nodes, prepend=0, append=np.pi / 2) > 0).all()):
            return arb(1)  # not a partition, so it defines no sign function
        half = [arb(float(angle)) for angle in nodes]
        with ctx.workprec(PRECISION + 2 * degree):  # balls grow by at most 1 + sqrt(2) a step
            eta = (arb(polynomial_dimension(degree, d)) * _defect_squared(half, degree, d)).sqrt()
        if not eta < arb(1) / 2:
            return arb(1)  # the zero polynomial is always within 1
        signed, total = _integrals(half, degree, d, arb(float(beta)))
        return (abs(signed / total) + eta) / (1 - eta)


def _integrals(half: list[arb], degree: int, d: int, beta: arb) -> tuple[arb, arb]:
    """The signed and the plain integral of exp(beta (cos x - 1)) sin(x)^(d-2) over [0, pi]."""

    def density(x: acb, _: bool) -> acb:
        return (-2 * beta * (x / 2).sin() ** 2).exp() * x.sin() ** (d - 2)

    pi = arb.pi()
    middle = [pi / 2] if degree % 2 == 0 else []
    edges = [arb(0), *half, *middle, *(pi - angle for angle in reversed(half)), pi]
    signed, total = arb(0), arb(0)
    tolerance = arb(2) ** -70
    for i, (a, b) in enumerate(pairwise(edges)):
        part = acb.integral(density, a, b, rel_tol=tolerance, abs_tol=tolerance / beta.max(1)).real
        signed += part if i % 2 == 0 else -part
        total += part
    return signed, total


def _defect_squared(half: list[arb], degree: int, d: int) -> arb:
    """Sum over l <= degree of (int s p_l w)^2 for the orthonormal polynomials p_l of the weight w.

    (1 - t^2) w p_l' / (l (l + 2 index)) is minus a primitive of w p_l, and p_l' is a multiple of
    the orthonormal polynomial of the weight with index one larger, of squared norm l (l + 2
    index).
    """
    index = arb(d - 2) / 2
    mass, mass_up = _arb_mass(index), _arb_mass(index + 1)
    angles = [*half, arb.pi() / 2]
    weights = [arb(4 * (-1) ** i) for i in range(len(half))] + [arb(2 * (-1) ** len(half))]
    total = arb(0)
    if degree % 2 == 1:  # degree 0 has the parity of the sign function
        moment = sum((w * _sine_integral(x, d - 2) for w, x in zip(weights, angles, strict=True)), arb(0))
        total += (mass * moment) ** 2
    cosines = [x.cos() for x in angles]
    weights = [w * x.sin() ** (d - 1) for w, x in zip(weights, angles, strict=True)]
    before, now = [arb(0)] * len(angles), [arb(1)] * len(angles)
    for l in range(1, degree + 1):  # ``now`` holds the polynomial of degree l - 1, index one larger
        if (l - degree - 1) % 2 == 0:
            moment = sum((w * q for w, q in zip(weights, now, strict=True)), arb(0))
            total += mass * mass_up * moment**2 / (l * (l + 2 * index))
        old, new = _recurrence(l - 1, index + 1), _recurrence(l, index + 1)
        before, now = (
            now,
            [(t * q - old * p) / new for t, q, p in zip(cosines, now, before, strict=True)],
        )
    return total


def _recurrence(n: int, index: arb) -> arb:
    """Coefficient a_n of t p_{n-1} = a_n p_n + a_{n-1} p_{n-2} (orthonormal Gegenbauer)."""
    if n == 0:
        return arb(0)
    if n == 1:
        return (1 / (2 * (1 + index))).sqrt()
    return (n * (n + 2 * index - 1) / (4 * (n + index) * (n + index - 1))).sqrt()


def _orthonormal(t: np.ndarray, degree: int, index: float) -> np.ndarray:
    """Orthonormal Gegenbauer polynomials of degrees 0..degree at t, shape (degree + 1, t.size)."""
    n = np.arange(2, degree + 2)
    a = np.sqrt(n * (n + 2 * index - 1) / (4 * (n + index) * (n + index - 1)))
    a = np.concatenate([[0.0, np.sqrt(1 / (2 * (1 + index)))], a])
    values = np.ones((degree + 1, t.size))
    for k in range(1, degree + 1):
        values[k] = (t * values[k - 1] - a[k - 1] * values[k - 2] * (k > 1)) / a[k]
    return values


def _edges(half: np.ndarray, degree: int) -> np.ndarray:
    middle = [np.pi / 2] if degree % 2 == 0 else []
    return np.concatenate([[0.0], half, middle, np.pi - half[::-1], [np.pi]])


def _log_mass(index: float) -> float:
    return float(gammaln(index + 1) - gammaln(index + 0.5) - 0.5 * np.log(np.pi))


def _arb_mass(index: arb) -> arb:
    return (index + 1).gamma() / ((index + arb(1) / 2).gamma() * arb.pi().sqrt())


def _sine_integral(x: arb, power: int) -> arb:
    """int_0^x sin^power, by the usual reduction in steps of two."""
    if power == 0:
        return x
    if power == 1:
        return 2 * (x / 2).sin() ** 2
    return ((power - 1) * _sine_integral(x, power - 2) - x.cos() * x.sin() ** (power - 1)) / power
