"""Lower bounds on a line of queries: residue classes, rays, and exhaustive search over supports.

The search proposes, ``certify._fusion_line`` decides. Exhaustive search is also an exact minimiser in one
variable: the first support that carries a head with positive weights is a smallest fusion.
"""

import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import count, pairwise, product
from math import gcd, prod
from random import Random
from typing import Any

import flint

from ..certify._fusion import Block, Poly, Ratio, context, fraction_text
from ..certify._fusion_exhaustive import PRIME, exclude
from ..certify._fusion_line import BUDGET as CHECKER_BUDGET
from ..certify._fusion_line import MOST_ATOMS, MOST_STEPS, line, negative_zeros, solutions
from ._positive import positive_combination

SURVIVORS = 10_000  # supports examined one by one before the search gives up
NODES_PER_SECOND = 400_000
LONGEST = 2**17  # degree of a denominator that is written out
ROOTS = 2000  # degree up to which zeros are computed
SMALL = 2048  # degrees up to which all orders of roots of unity are tried


def directions(dim: int) -> Iterator[tuple[int, ...]]:
    """Primitive integer vectors up to sign, small ones first; random ones where there are too many."""
    draw = Random(0)
    for size in count(1):
        if (2 * size + 1) ** dim < 20_000:
            box = list(product(range(-size, size + 1), repeat=dim))
        else:
            box = [tuple(draw.randint(-size - 1, size + 1) for _ in range(dim)) for _ in range(100)]
        found = {u for u in box if max(map(abs, u)) >= size and gcd(*u) == 1 and next(x for x in u if x) > 0}
        yield from sorted(found, key=lambda u: (u.count(0), sum(map(abs, u)), [-x for x in u]))


def radices(blocks: Sequence[Block]) -> list[list[int]]:
    """Pairs (M, n) for ``radix_bound`` with a large product: the best chain among those that divide Q."""
    q = _denominator(blocks)
    if q is None or q.degree() < 1:
        return []
    orders = {n for n in _candidate_orders(blocks, int(q.degree())) if q % flint.fmpz_poly.cyclotomic(n) == 0}
    pairs = sorted((m, order // m) for order in orders for m in _divisors(order) if m < order)
    best: dict[int, tuple[int, list[list[int]]]] = {1: (1, [])}  # M n -> bound and the pairs that end there
    for m, n in pairs:
        if orders.issuperset(d for d in _divisors(m * n) if m % d):
            bound, chain = max((best[e] for e in best if m % e == 0), key=lambda item: item[0])
            if bound * n > best.get(m * n, (0, []))[0]:
                best[m * n] = bound * n, [*chain, [m, n]]
    return max(best.values(), key=lambda item: item[0])[1]


def ray(blocks: Sequence[Block]) -> tuple[int, dict[str, Any]]:
    """The best bound by zeros on a ray, and its witness."""
    best: tuple[int, dict[str, Any]] = (1, {"step": 1, "blocks": [], "points": ["1"]})
    polys = [_dense(b.ratio.denominator) for b in blocks]
    if any(p is None for p in polys):
        return best
    steps = [gcd(*(i for i, c in enumerate(p.coeffs()) if c)) for p in polys]
    for step in sorted({d for s in steps if s for d in range(1, min(s, 10**4) + 1) if s % d == 0}):
        chosen = [i for i, s in enumerate(steps) if s and s % step == 0]
        contracted = [flint.fmpz_poly([int(c) for c in polys[i].coeffs()][::step]) for i in chosen]
        if sum(f.degree() for f in contracted) > ROOTS:
            continue
        points = _separators(contracted)
        atoms = 1 + negative_zeros(prod(contracted, start=flint.fmpz_poly([1])), points)
        if atoms > best[0]:
            best = atoms, {"step": step, "blocks": chosen, "points": [fraction_text(s) for s in points]}
    return best


def minimum(
    blocks: Sequence[Block], start: int, top: int, deadline: float
) -> tuple[int, dict[str, Any], Ratio | None]:
    """Exhaustive search for the fewest atoms in one variable.

    Arguments:
        start: a number of atoms known to be necessary.
        top: stop when this many atoms are known to be necessary.

    Returns:
        atoms that are necessary, the witness for ``exhaustive_bound``, and a head with exactly that many
        atoms if the search came upon one.
    """
    proved, witness = 1, {"atoms": 1, "refutations": []}
    if length(blocks) >= MOST_STEPS:
        return proved, witness, None
    numerators, denominator = line(blocks)
    if denominator[0] % PRIME == 0:
        return proved, witness, None
    for atoms in range(max(start, 2), min(top, MOST_ATOMS) + 1):
        nodes = int(min((deadline - time.monotonic()) * NODES_PER_SECOND, CHECKER_BUDGET))
        outcome = exclude(numerators, denominator, atoms - 1, nodes, SURVIVORS)
        if not outcome.finished:
            break
        refutations = []
        for support in sorted(outcome.supports, key=len):
            basis = solutions(numerators, denominator, support)
            c, y = positive_combination([v[: len(support)] for v in basis], len(support))
            if c is not None:
                return proved, witness, _head(numerators, support, basis, c)
            if y is None or time.monotonic() > deadline:
                return proved, witness, None
            refutations.append([list(support), y])
        proved, witness = atoms, {"atoms": atoms, "refutations": refutations}
    return proved, witness, None


def length(blocks: Sequence[Block]) -> int:
    """Degree of the denominator of a sum of blocks in one variable."""
    return sum(max(int(e[0]) for e in b.ratio.denominator.monoms()) for b in blocks)


def _head(
    numerators: Sequence[Any], support: Sequence[int], basis: Sequence[list[int]], c: list[int]
) -> Ratio:
    """The head on a support with D = sum_j c_j D_j, as a ratio in one variable."""
    size, ctx = len(support), context(1)
    total = [
        sum(a * v[i] for a, v in zip(c, basis, strict=True)) for i in range(size * (1 + len(numerators)))
    ]
    common = gcd(*total)
    polys = [
        ctx.from_dict({(s,): x // common for s, x in zip(support, total[i : i + size], strict=True)})
        for i in range(0, len(total), size)
    ]
    return Ratio(tuple(polys[1:]), polys[0])


def _separators(polys: Sequence[Any]) -> list[Fraction]:
    """Positive rationals between which the positive zeros s of the f(-s) lie one at a time."""
    zeros = []
    for f in polys:
        signs = [c if i % 2 == 0 else -c for i, c in enumerate(f.coeffs()) if c]
        if all(a * b > 0 for a, b in pairwise(signs)):  # no zero by Descartes' rule
            continue
        simple = f // f.gcd(f.derivative())
        zeros += [-x.real for x, _ in simple.complex_roots() if x.imag == 0 and x.real < 0]
    if not zeros:
        return [Fraction(1)]
    zeros.sort(key=lambda x: x.mid())
    middles = {_rational((a + b) / 2) for a, b in pairwise(zeros)}
    return sorted({_rational(zeros[0] / 2), *middles, _rational(zeros[-1] * 2)})


def _rational(x: Any) -> Fraction:
    mantissa, exponent = x.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _candidate_orders(blocks: Sequence[Block], degree: int) -> list[int]:
    """Orders of roots of unity that may be zeros of Q: all small ones, or those its exponents suggest."""
    if degree <= SMALL:
        orders = set(range(2, 4 * degree + 60))
    else:
        orders = set()
        for b in blocks:
            exponents = sorted(int(e[0]) for e in b.ratio.denominator.monoms())
            gaps = {y - x for x, y in pairwise(exponents)} | {exponents[-1] - exponents[0]}
            for gap in gaps:
                orders |= {*_divisors(2 * gap), *_divisors(exponents[-1] - exponents[0] + gap)}
    return sorted(n for n in orders if n > 1 and _totient(n) <= degree)


def _divisors(n: int) -> list[int]:
    result = [1]
    for p, e in flint.fmpz(n).factor():
        result = [d * int(p) ** k for d in result for k in range(e + 1)]
    return result


def _totient(n: int) -> int:
    for p, _ in flint.fmpz(n).factor():
        n -= n // int(p)
    return n


def _denominator(blocks: Sequence[Block]) -> Any:
    polys = [_dense(b.ratio.denominator) for b in blocks]
    if any(p is None for p in polys):
        return None
    q = flint.fmpz_poly([1])
    for p in polys:
        q *= p
    return q if q.degree() < LONGEST else None


def _dense(poly: Poly) -> Any:
    """A polynomial in one variable written out, or ``None`` if its degree is too large."""
    terms = {int(e[0]): int(c) for e, c in poly.to_dict().items()}
    if max(terms, default=0) >= LONGEST:
        return None
    return flint.fmpz_poly([terms.get(i, 0) for i in range(max(terms, default=0) + 1)])
