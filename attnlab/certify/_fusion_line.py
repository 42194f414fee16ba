"""Lower bounds on the atoms of a single head in one variable, from an integer witness.

All functions take blocks P_b/Q_b in one variable. Except for ``exhaustive_bound`` they need Q, the
product of the Q_b, to be the reduced denominator: then D = Q G for the denominator D of every single head.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import Any

import flint

from ._errors import InvalidWitness
from ._fusion import Block, Poly, add, fraction
from ._fusion_exhaustive import exclude

BUDGET = 20_000_000  # nodes of an exhaustive search before the checker gives up
DENSE = 2**20
MOST_ATOMS, MOST_STEPS = 64, 4096  # an exhaustive search beyond these has no hope


def radix_bound(blocks: Sequence[Block], data: Mapping[str, Any]) -> int:
    """prod n_h if every 1 + x^M + ... + x^{M (n-1)}, for (M, n) in ``pairs``, divides Q.

    It then divides D, whose mass per residue class modulo M n has a Fourier transform that vanishes
    outside the multiples of n, so it is periodic with period M. Weights are positive, so every non-empty
    class modulo M splits into n non-empty classes modulo M n. With M_h n_h dividing M_{h+1} these
    splittings multiply.
    """
    pairs = [(_positive(m), _positive(n)) for m, n in data["pairs"]]
    if any(b % (m * n) for (m, n), (b, _) in pairwise(pairs)):
        raise InvalidWitness("The radices do not divide each other in turn.")
    if any(m * n > DENSE for m, n in pairs):
        raise InvalidWitness("The radices are too large to write out.")
    q = _dense(prod((b.ratio.denominator for b in blocks), start=_one(blocks)))
    for m, n in pairs:
        factor = flint.fmpz_poly([int(i % m == 0) for i in range(m * (n - 1) + 1)])
        if q % factor != 0:
            raise InvalidWitness(f"The denominator is not divisible by the sum of {n} powers of x^{m}.")
    return prod(n for _, n in pairs)


def ray_bound(blocks: Sequence[Block], data: Mapping[str, Any]) -> int:
    """1 + the number of positive zeros s of f(-s), with multiplicity, that ``points`` separate.

    f(x^step) is the product of the chosen ``blocks``' denominators. Each zero is one of Q, hence of D, of at
    least that multiplicity, on the ray x = r exp(i pi / step), r > 0. There D is a combination of as many
    powers of r as it has atoms; so is its real part after a rotation that makes no coefficient vanish, and
    by Descartes' rule m powers have at most m - 1 positive zeros, counted with multiplicity.

    Zeros are shown by sign changes at increasing rational ``points`` > 0: of the square-free part of f for
    those of multiplicity 1 or more, then of gcd(f, f') for those of multiplicity 2 or more, and so on.
    """
    step, chosen = _positive(data["step"]), list(data["blocks"])
    if any(type(b) is not int or not 0 <= b < len(blocks) for b in chosen) or len(set(chosen)) < len(chosen):
        raise InvalidWitness("The chosen blocks must be different positions of blocks.")
    q = _dense(prod((blocks[b].ratio.denominator for b in chosen), start=_one(blocks)))
    coefficients = [int(c) for c in q.coeffs()]
    if any(c for i, c in enumerate(coefficients) if i % step):
        raise InvalidWitness(f"The chosen denominators are not polynomials in x^{step}.")
    points = [fraction(s) for s in data["points"]]
    if not points or any(a >= b for a, b in pairwise(points)) or min(points) <= 0:
        raise InvalidWitness("The points on the ray must be positive and increasing.")
    return 1 + negative_zeros(flint.fmpz_poly(coefficients[::step]), points)


def negative_zeros(f: Any, points: Sequence[Fraction]) -> int:
    """Sign changes at the negated points: of f's square-free part, and again for repeated zeros."""
    count = 0
    while f.degree() > 0:
        repeated = f.gcd(f.derivative())
        simple = f // repeated
        signs = [_sign(simple(flint.fmpq(-s.numerator, s.denominator))) for s in points]
        count += sum(a * b < 0 for a, b in pairwise(signs))
        f = repeated
    return count


def exhaustive_bound(blocks: Sequence[Block], data: Mapping[str, Any]) -> int:
    """``atoms``, after excluding every support with fewer atoms.

    Supports that survive modulo a prime are refuted one by one: if y >= 0, y != 0 is orthogonal to every D
    that solves N Q = P D on the support, no solution has only positive weights there.
    """
    atoms = _positive(data["atoms"])
    refutations = {tuple(support): list(y) for support, y in data["refutations"]}
    numerators, denominator = line(blocks)
    if atoms > MOST_ATOMS or len(denominator) > MOST_STEPS:
        raise InvalidWitness("The exhaustive search is too long for the checker.")
    outcome = exclude(numerators, denominator, atoms - 1, BUDGET, len(refutations))
    if not outcome.finished:
        raise InvalidWitness("The exhaustive search is too long for the checker.")
    for support in outcome.supports:
        if support not in refutations:
            raise InvalidWitness(f"A head with keys {list(support)} has not been excluded.")
        refute(numerators, denominator, support, refutations[support])
    return atoms


def line(blocks: Sequence[Block]) -> tuple[list[list[int]], list[int]]:
    """P and Q of the sum of blocks in one variable, coefficients lowest first, Q(0) != 0."""
    total = add([b.ratio for b in blocks])
    q = [int(c) for c in _dense(total.denominator).coeffs()]
    low = next(i for i, c in enumerate(q) if c)
    ps = [[int(c) for c in _dense(n).coeffs()] for n in total.numerators]
    if any(c for p in ps for c in p[:low]):
        raise InvalidWitness("A numerator starts before the denominator.")
    return [p[low:] for p in ps], q[low:]


def solutions(
    numerators: Sequence[Sequence[int]], denominator: Sequence[int], support: Sequence[int]
) -> list[list[int]]:
    """A basis of all (D, N_1, ..., N_p) on the support with N Q = P D, integer vectors."""
    size, p = len(support), len(numerators)
    reach = max(len(denominator), *map(len, numerators))
    height = support[-1] + reach
    matrix = [[0] * (size * (1 + p)) for _ in range(height * p)]
    for column, s in enumerate(support):
        for i, numerator in enumerate(numerators):
            for j, c in enumerate(numerator):
                matrix[i * height + s + j][column] -= c
            for j, c in enumerate(denominator):
                matrix[i * height + s + j][size * (1 + i) + column] += c
    basis, nullity = flint.fmpz_mat(matrix).nullspace()
    rows = basis.tolist()
    return [[int(row[j]) for row in rows] for j in range(nullity)]


def refute(
    numerators: Sequence[Sequence[int]], denominator: Sequence[int], support: Sequence[int], y: Sequence[int]
) -> None:
    """Raise ``InvalidWitness`` unless ``y`` proves that no head has exactly these keys."""
    if len(y) != len(support) or any(type(x) is not int for x in y) or min(y) < 0 or not any(y):
        raise InvalidWitness(f"The refutation of the keys {list(support)} is malformed.")
    for solution in solutions(numerators, denominator, support):
        if sum(a * b for a, b in zip(y, solution[: len(support)], strict=True)):
            raise InvalidWitness(f"The refutation of the keys {list(support)} does not hold.")


def _dense(poly: Poly) -> Any:
    terms = poly.to_dict()
    if any(len(e) != 1 for e in terms):
        raise InvalidWitness("This bound needs exactly one variable.")
    size = max((int(e[0]) for e in terms), default=0) + 1
    if size > DENSE:
        raise InvalidWitness("A polynomial has too large a degree to be written out.")
    coefficients = [0] * size
    for (i,), c in terms.items():
        coefficients[int(i)] = int(c)
    return flint.fmpz_poly(coefficients)


def _one(blocks: Sequence[Block]) -> Poly:
    return blocks[0].ratio.denominator.context().constant(1)


def _positive(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise InvalidWitness("The witness needs a positive integer.")
    return value


def _sign(value: Any) -> int:
    return (value > 0) - (value < 0)
