"""Single heads that equal a part: multiples of its reduced fraction with admissible coefficients."""

from collections.abc import Iterator
from itertools import product

import flint

from ..certify._fusion import Poly, Ratio, add
from ._parts import Part

CANDIDATES = 600  # multiples of the reduced fraction tried per part
LONGEST_UNIFORM = 2000  # atoms of a head with equal weights
LARGEST = 1_050_000  # head-atom products beyond this are not written out


def admissible(ratio: Ratio) -> bool:
    """Whether N/D is a head as it stands: D >= 0 and the support of N inside that of D."""
    if any(c < 0 for c in ratio.denominator.coeffs()):
        return False
    keys = set(ratio.denominator.monoms())
    return all(keys.issuperset(n.monoms()) for n in ratio.numerators)


def atoms(ratio: Ratio) -> int:
    """Number of terms of the denominator."""
    return len(ratio.denominator)


def times(ratio: Ratio, factor: Poly) -> Ratio:
    """Numerators and denominator multiplied by the same polynomial."""
    return Ratio(tuple(n * factor for n in ratio.numerators), ratio.denominator * factor)


def plain_product(part: Part) -> int:
    """Atoms of the product of all denominators as given, equal keys merged."""
    return atoms(add(part.reduced.heads))


def best_multiple(part: Part) -> Ratio:
    """The admissible multiple of P/Q by a divisor of the cofactor that has the fewest atoms.

    The cofactor itself (the plain product of the heads) is always admissible.
    """
    heads, blocks = part.reduced.heads, part.reduced.blocks
    lowest = add([b.ratio for b in blocks])
    full = heads[0].denominator
    for h in heads[1:]:
        full *= h.denominator
    cofactor = full / lowest.denominator
    best = times(lowest, cofactor)
    for factor in _divisors(cofactor):
        trial = times(lowest, factor)
        if atoms(trial) < atoms(best) and admissible(trial):
            best = trial
    return _uniform(lowest, atoms(best)) or best


def _uniform(lowest: Ratio, below: int) -> Ratio | None:
    """In one variable: the head with keys 0..n-1 and equal weights, n < ``below``, if there is one.

    Its denominator (x^n - 1)/(x - 1) has all n-th roots of unity but 1 as simple zeros, and no numerator
    has a key outside its support. So sum over a | m of c_a sigma(a q) needs at most 2 m atoms.
    """
    if lowest.denominator.context().nvars() != 1:
        return None
    degree = int(lowest.denominator.degrees()[0])
    if degree + 1 >= min(below, LONGEST_UNIFORM):
        return None
    q = flint.fmpz_poly([int(lowest.denominator[(i,)]) for i in range(degree + 1)])
    q //= q.content()
    for n in range(degree + 1, min(below, LONGEST_UNIFORM)):
        quotient, rest = divmod(flint.fmpz_poly([1] * n), q)
        if rest == 0:
            ctx = lowest.denominator.context()
            factor = ctx.from_dict({(i,): int(c) for i, c in enumerate(quotient.coeffs()) if c})
            return times(lowest, factor)
    return None


def _divisors(poly: Poly) -> Iterator[Poly]:
    """Divisors of a polynomial up to constants, the constant first, at most ``CANDIDATES``."""
    one = poly.context().constant(1)
    yield one
    if poly.is_constant():
        return
    _, factors = poly.factor()
    powers = [range(int(m) + 1) for _, m in factors]
    for count, exponents in enumerate(product(*powers)):
        if count >= CANDIDATES:
            return
        divisor = one
        for (factor, _), e in zip(factors, exponents, strict=True):
            divisor *= factor**e
        yield -divisor if divisor.leading_coefficient() < 0 else divisor
