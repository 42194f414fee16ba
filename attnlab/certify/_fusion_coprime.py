"""A small proof that two Laurent polynomials over Z share no factor but monomials.

Substitute x_i -> c_i t^{u_i} over F_p. Let A have exactly one term where <u, e> is largest and
exactly one where it is smallest, both with coefficients that do not vanish modulo p. A common factor g
of A and B may be taken primitive, so A = g h and B = g h' over Z (Gauss). The extreme faces of A are the
products of those of g and h, so those of g are single terms too, and their coefficients divide A's.
If g is not a monomial they are different terms, so the image of g has positive width in t; it divides
both images. Hence images with a gcd of degree 0 (powers of t aside) prove that A and B are coprime.
"""

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import flint

PRIMES = (2**61 - 1, 2**63 - 25)  # the second where the first divides a coefficient that must stay
DENSE = 2**20  # largest degree of a polynomial that is written out
MODULUS = 2**11  # largest degree of a polynomial modulo which huge powers of t are taken

Substitution = tuple[Sequence[int], Sequence[int]]  # u and c
Terms = Mapping[tuple[int, ...], int]


def coprime(a: Terms, b: Terms, substitution: Substitution) -> bool:
    """Whether the substitution proves that ``a`` and ``b`` share no factor (False proves nothing)."""
    u, c = substitution
    if len(a) == 1:
        return True
    heights = {e: _dot(u, e) for e in a}
    extremes = []
    for end in (max(heights.values()), min(heights.values())):
        extreme = [e for e, height in heights.items() if height == end]
        if len(extreme) > 1:
            return False
        extremes.append(a[extreme[0]])
    for prime in PRIMES:
        if all(x % prime for x in (*c, *extremes)):
            return _degree_of_gcd(_image(a, u, c, prime), _image(b, u, c, prime), prime) == 0
    return False


def _image(terms: Terms, u: Sequence[int], c: Sequence[int], prime: int) -> dict[int, int]:
    """The image in F_p[t] with powers of t stripped, as {degree: coefficient}."""
    found: dict[int, int] = {}
    for e, coefficient in terms.items():
        value = coefficient % prime
        for x, power in zip(c, e, strict=True):
            value = value * pow(x, power, prime) % prime
        height = _dot(u, e)
        found[height] = (found.get(height, 0) + value) % prime
    found = {h: v for h, v in found.items() if v}
    low = min(found, default=0)
    return {h - low: v for h, v in found.items()}


def _degree_of_gcd(a: dict[int, int], b: dict[int, int], prime: int) -> int:
    """Degree of the gcd of two sparse polynomials, or -1 if both are too large to write out."""
    if not a or not b:
        return max([*a, *b], default=0)
    step = gcd(*a, *b)  # both are polynomials in t^step, and so is their gcd
    if step == 0:
        return 0
    small, large = sorted(({h // step: v for h, v in x.items()} for x in (a, b)), key=max)
    if max(small) == 0:
        return 0
    if max(large) > DENSE and max(small) > MODULUS:
        return -1
    base = _dense(small, prime)
    if max(large) <= DENSE:
        other = _dense(large, prime)
    else:  # only its remainder modulo the small one matters
        t = flint.nmod_poly([0, 1], prime)
        other = flint.nmod_poly([0], prime)
        for h, v in large.items():
            other += t.pow_mod(h, base) * v
    return step * int(base.gcd(other).degree())


def _dense(terms: dict[int, int], prime: int) -> Any:
    return flint.nmod_poly([terms.get(i, 0) for i in range(max(terms) + 1)], prime)


def _dot(u: Sequence[int], e: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(u, e, strict=True))
