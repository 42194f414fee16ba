"""Splitting a sum of heads into independent parts, and each part into reduced, coprime blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd
from random import Random

import flint

from ..certify._fusion import Block, HeadData, Poly, Ratio, ratios
from ..certify._fusion_coprime import coprime
from ..certify._fusion_lower import mapped_heads, terms
from ._lattice import Key, Lattice

LARGEST_DEGREE = 2**18  # above this, a common factor is not searched for (it would not fit in memory)


@dataclass(frozen=True)
class Reduced:
    """Heads as blocks P_b/Q_b in lowest terms with coprime Q_b, and the witness for that.

    Attributes:
        heads: ratios of the single heads; ``blocks`` refer to them by position.
        blocks: sums of some heads in lowest terms.
        mix: integer combination of the numerators that is coprime to each denominator.
        substitutions: pairs (u, c) for ``certify._fusion_coprime``.
        certain: False if exponents lie too far apart to look for common factors; then every head is a
            block as it stands, and nothing is known about lowest terms.
    """

    heads: tuple[Ratio, ...]
    blocks: tuple[Block, ...]
    mix: tuple[int, ...]
    substitutions: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    certain: bool = True


class TooFarApart(ValueError):
    """Polynomials whose common factors cannot be looked for, or not be excluded by a small proof."""


@dataclass(frozen=True)
class Part:
    """Heads whose key differences are independent of those of all other parts.

    Attributes:
        heads: positions among all heads.
        data: the heads themselves, in the coordinates they were given in.
        lattice: of their key differences.
        reduced: their sum in lattice coordinates.
    """

    heads: tuple[int, ...]
    data: tuple[HeadData, ...]
    lattice: Lattice
    reduced: Reduced

    def mapped(self, rows: Sequence[Key] | None = None) -> tuple[list[HeadData], list[Key], int]:
        """Heads in lattice coordinates, or in integer combinations ``rows`` of them; matrix, divisor."""
        matrix = list(self.lattice.matrix)
        if rows is not None:
            columns = list(zip(*matrix, strict=True))
            matrix = [tuple(_dot(row, column) for column in columns) for row in rows]
        return mapped_heads(self.data, matrix, self.lattice.divisor), matrix, self.lattice.divisor


def split(heads: Sequence[HeadData], scale: int) -> list[Part]:
    """The finest partition of heads into parts whose key differences span independent subspaces."""
    parts = []
    for group in _independent(heads):
        data = tuple(heads[h] for h in group)
        lattice = Lattice.spanned([h.exponents for h in data])
        mapped = mapped_heads(data, lattice.matrix, lattice.divisor)
        parts.append(Part(tuple(group), data, lattice, reduce(mapped, scale)))
    return parts


def reduce(heads: Sequence[HeadData], scale: int) -> Reduced:
    """The sum of the heads in lowest terms, or as it stands if its exponents lie too far apart."""
    single = tuple(ratios(heads, scale))
    try:
        return _reduce(heads, single)
    except TooFarApart:
        mix = (1,) + (0,) * (len(single[0].numerators) - 1)
        return Reduced(single, tuple(Block((i,), r) for i, r in enumerate(single)), mix, (), certain=False)


def _reduce(heads: Sequence[HeadData], single: tuple[Ratio, ...]) -> Reduced:
    lowest = [_lowest(r) for r in single]
    finder = _Coprimality(len(heads[0].exponents[0]), len(single[0].numerators))
    group = list(range(len(single)))
    for i, j in combinations(range(len(single)), 2):
        if group[i] != group[j] and not finder.proves(lowest[i].denominator, lowest[j].denominator):
            group = [group[i] if g == group[j] else g for g in group]
    blocks = []
    for g in dict.fromkeys(group):
        members = tuple(i for i, other in enumerate(group) if other == g)
        blocks.append(Block(members, _sum([lowest[i] for i in members])))
    # The sums may have lost factors, so coprimality is shown for them once more.
    finder = _Coprimality(len(heads[0].exponents[0]), len(single[0].numerators))
    for a, b in combinations(blocks, 2):
        if not finder.proves(a.ratio.denominator, b.ratio.denominator):
            raise TooFarApart
    finder.settle_mix(blocks)
    return Reduced(single, tuple(blocks), finder.mix, tuple(dict.fromkeys(finder.used)))


def common_factor(a: Poly, b: Poly) -> Poly:
    """A greatest common divisor.

    Raises:
        TooFarApart: the polynomials are too large to be divided, and were not shown to be coprime.
    """
    step = [gcd(*map(int, column)) for column in zip(*a.to_dict(), *b.to_dict(), strict=True)]
    degrees = [max(int(x), int(y)) for x, y in zip(a.degrees(), b.degrees(), strict=True)]
    if all(d <= LARGEST_DEGREE * max(s, 1) for d, s in zip(degrees, step, strict=True)):
        return a.gcd(b)
    if _Coprimality(len(degrees), 1).proves(a, b, exact=False):
        return a.context().constant(1)
    raise TooFarApart


class _Coprimality:
    """Finds substitutions that prove polynomials coprime, and remembers those it used."""

    def __init__(self, variables: int, numerators: int):
        self.variables, self.random = variables, Random(0)
        self.mix = (1,) + (0,) * (numerators - 1)
        self.used: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def proves(self, a: Poly, b: Poly, exact: bool = True) -> bool:
        """Whether a and b are coprime; False is certain if ``exact``."""
        a_terms, b_terms = terms(a), terms(b)
        if len(a_terms) == 1 or any(coprime(a_terms, b_terms, s) for s in self.used):
            return True
        tries = 60 if self.variables > 1 else 1  # in one variable all substitutions are the same
        for attempt in range(tries):
            size = 1 + attempt // 3
            u = tuple(self.random.randint(-size, size) for _ in range(self.variables))
            c = tuple(self.random.randint(1, 10**9) for _ in range(self.variables))
            if self.variables == 1:
                u, c = (1,), (1,)
            if coprime(a_terms, b_terms, (u, c)):
                self.used.append((u, c))
                return True
            ask = exact and attempt == min(4, tries - 1)  # only after some cheap attempts
            if ask and (not b_terms or len(common_factor(a, b).to_dict()) > 1):
                return False
        if exact:
            raise TooFarApart  # coprime, but without a proof that the checker would accept
        return False

    def settle_mix(self, blocks: Sequence[Block]) -> None:
        """Choose one combination of numerators that is coprime to the denominator in every block."""
        zero = 0 * blocks[0].ratio.denominator
        for attempt in range(60):
            if attempt:
                self.mix = tuple(self.random.randint(-attempt, attempt) for _ in self.mix)
            above = [
                sum((m * n for m, n in zip(self.mix, b.ratio.numerators, strict=True)), zero) for b in blocks
            ]
            if all(self.proves(b.ratio.denominator, a) for a, b in zip(above, blocks, strict=True)):
                return
        raise TooFarApart


def _lowest(ratio: Ratio) -> Ratio:
    """In lowest terms, with coprime integer coefficients and a denominator that is positive for x > 0."""
    factor = ratio.denominator
    for n in ratio.numerators:
        if n != 0:  # zero has every factor
            factor = common_factor(factor, n)
    numerators, denominator = [n / factor for n in ratio.numerators], ratio.denominator / factor
    content = gcd(*(int(c) for p in (*numerators, denominator) for c in p.coeffs()))
    # A factor of a polynomial with positive coefficients has one sign for x > 0: its leading one.
    content = -content if denominator.leading_coefficient() < 0 else content
    return Ratio(tuple(n / content for n in numerators), denominator / content)


def _sum(parts: Sequence[Ratio]) -> Ratio:
    """The sum in lowest terms, by halving."""
    if len(parts) == 1:
        return parts[0]
    a, b = _sum(parts[: len(parts) // 2]), _sum(parts[len(parts) // 2 :])
    shared = common_factor(a.denominator, b.denominator)
    left, right = a.denominator / shared, b.denominator / shared
    numerators = tuple(x * right + y * left for x, y in zip(a.numerators, b.numerators, strict=True))
    return _lowest(Ratio(numerators, left * b.denominator))


def _independent(heads: Sequence[HeadData]) -> list[list[int]]:
    """Connected components of the linear matroid of key differences, heads kept whole.

    In the reduced row echelon form of the differences (as columns), every other column is a
    combination of pivot columns, and joining it with those gives the components.
    """
    columns, owner = [], []
    for h, head in enumerate(heads):
        for e in head.exponents[1:]:
            columns.append([a - b for a, b in zip(e, head.exponents[0], strict=True)])
            owner.append(h)
    group = list(range(len(heads)))

    def join(i: int, j: int) -> None:
        a, b = group[i], group[j]
        for k, g in enumerate(group):
            if g == b:
                group[k] = a

    if columns:
        echelon, _, rank = flint.fmpz_mat(columns).transpose().rref()
        table = [[int(x) for x in row] for row in echelon.tolist()][:rank]
        for row in table:
            pivot = next(j for j, x in enumerate(row) if x)
            for j, x in enumerate(row):
                if x:
                    join(owner[pivot], owner[j])
    # Heads without differences are constants: they go with the first part.
    moving = [h for h in range(len(heads)) if len(heads[h].exponents) > 1]
    for h in range(len(heads)):
        if moving and len(heads[h].exponents) == 1:
            join(moving[0], h)
        elif not moving:
            join(0, h)
    return [[h for h, g in enumerate(group) if g == label] for label in dict.fromkeys(group)]


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))
