"""Lattice coordinates: from rational keys to integer exponents, shared over heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import flint

from ._exact import ExactHead, is_row, rational, rows, sequence

Key = tuple[int, ...]


def from_keys(keys: Any, weights: Any, values: Any, *, exact_floats: bool = False) -> list[ExactHead]:
    """Exact heads from rational keys, in coordinates of the lattice that all key differences generate.

    Each head is moved so that its first key is 0, which changes no value: only differences of keys
    within a head matter. A basis of the lattice of all differences comes from a Hermite normal form
    followed by LLL, and is kept in ``basis``, so that ``to_head`` returns to the units of ``keys``.

    Arguments:
        keys: one ``(n_h, d)`` table per head (``(n_h,)`` means d = 1); integers, ``Fraction``, or text
            such as ``"1/3"`` and ``"0.1"``, read exactly.
        weights: one list of n_h positive numbers per head.
        values: one ``(n_h,)`` or ``(n_h, p)`` table per head.
        exact_floats: accept floats and mean the binary fractions they are.

    A single head may be given without the outer list; the result is a list in any case.

    Raises:
        ValueError: dimensions that disagree, floats without ``exact_floats``, or as in ``ExactHead``.

    >>> heads = from_keys([["0", "1/2"], ["0", "3/4"]], [[1, 1], [1, 1]], [[0, 1], [0, 1]])
    >>> [h.exponents for h in heads]
    [((0,), (2,)), ((0,), (3,))]
    >>> heads[0].basis
    ((Fraction(1, 4),),)
    """
    if not is_row(sequence(weights, "weights")[0]):
        keys, weights, values = [keys], [weights], [values]
    tables = [
        [[rational(x, "keys", exact_floats) for x in row] for row in rows(table, "keys")]
        for table in sequence(keys, "keys")
    ]
    weights, values = sequence(weights, "weights"), sequence(values, "values")
    if not len(tables) == len(weights) == len(values):
        raise ValueError(
            f"There are keys for {len(tables)} heads, weights for {len(weights)} and values for "
            f"{len(values)}; give one of each per head."
        )
    dims = {len(row) for table in tables for row in table}
    if len(dims) > 1 or 0 in dims:
        raise ValueError(f"keys has rows of lengths {sorted(dims)}; all keys need one dimension d >= 1.")
    unit = lcm(*(x.denominator for table in tables for row in table for x in row))
    whole = [[tuple(int(x * unit) for x in row) for row in table] for table in tables]
    lattice = Lattice.spanned(whole)
    basis = [[Fraction(x, unit) for x in row] for row in lattice.basis]
    return [
        ExactHead(
            [lattice.coordinates(table[0], key) for key in table], w, v, basis, exact_floats=exact_floats
        )
        for table, w, v in zip(whole, weights, values, strict=True)
    ]


@dataclass(frozen=True)
class Lattice:
    """A lattice of key differences: rows of ``basis``, and a left inverse ``matrix``/``divisor``.

    Coordinates of a difference are ``matrix (key - origin) / divisor``.
    """

    basis: tuple[Key, ...]
    matrix: tuple[Key, ...]
    divisor: int

    @classmethod
    def spanned(cls, tables: Sequence[Sequence[Key]]) -> "Lattice":
        """The lattice of all differences within tables; one zero row if there are none.

        Where the Hermite basis consists of unit vectors it is kept, so coordinates keep their meaning.
        """
        differences = {
            tuple(a - b for a, b in zip(key, table[0], strict=True)) for table in tables for key in table
        }
        hermite = flint.fmpz_mat([list(row) for row in sorted(differences)]).hnf()
        found = [[int(x) for x in row] for row in hermite.tolist() if any(row)]
        dim = len(tables[0][0])
        if not found:
            unit = tuple(int(i == 0) for i in range(dim))
            return cls((unit,), (unit,), 1)
        if any(sum(map(abs, row)) != 1 for row in found):
            found = [[int(x) for x in row] for row in flint.fmpz_mat(found).lll().tolist()]
            found = sorted([-x for x in row] if next(filter(None, row)) < 0 else row for row in found)
        b = flint.fmpz_mat(found)
        inverse, divisor = flint.fmpq_mat(b * b.transpose()).inv().numer_denom()
        matrix = (inverse * b).tolist()
        return cls(
            tuple(map(tuple, found)), tuple(tuple(int(x) for x in row) for row in matrix), int(divisor)
        )

    def coordinates(self, origin: Key, key: Key) -> Key:
        """Lattice coordinates of ``key - origin``."""
        difference = [a - b for a, b in zip(key, origin, strict=True)]
        images = [sum(m * d for m, d in zip(row, difference, strict=True)) for row in self.matrix]
        return tuple(x // self.divisor for x in images)

    def key(self, coordinates: Key) -> Key:
        """The key difference with these coordinates."""
        columns = zip(*self.basis, strict=True)
        return tuple(sum(c * b for c, b in zip(coordinates, column, strict=True)) for column in columns)
