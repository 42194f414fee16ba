"""Heads with exact data: integer keys, positive rational weights, rational values."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ..certify._fusion import HeadData

if TYPE_CHECKING:
    from ..heads import Head

Row = tuple[Fraction, ...]
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*|\s*[+-]?\d+\s*/\s*\d+\s*")


@dataclass(frozen=True, init=False, repr=False)
class ExactHead:
    """One softmax head with exact data, in coordinates in which its keys are integers.

    ``head(q) = sum_i w_i v_i x^{e_i} / sum_i w_i x^{e_i}`` with x = exp(q) in the coordinates dual to
    those of the keys. The coordinates are those of a lattice, so keys with several scales that are
    linearly independent over the rationals fit too: keys 0, 1 and 0, sqrt(2) on the line are the
    exponents (0, 0), (1, 0) and (0, 0), (0, 1) with ``basis=[[1], [2**0.5]]``.

    Arguments:
        exponents: ``(n, rho)`` integers of any size (``(n,)`` means rho = 1), ``n >= 1``, ``rho >= 1``.
        weights: ``(n,)`` positive; integers, ``Fraction`` or text such as ``"2/3"`` or ``"0.1"``.
        values: ``(n,)`` or ``(n, p)``, same kinds of numbers.
        basis: ``(rho, d)``, the key of unit exponent j; default: the identity. Only ``to_head`` uses it.
        exact_floats: accept floats and mean the binary fractions they are.

    Repeated keys are merged (weights add, values average), and atoms are sorted by key.

    Raises:
        ValueError: floats without ``exact_floats``, weights that are not positive, empty or ragged data.

    >>> head = ExactHead([[0], [1], [1]], [1, "1/2", "1/2"], [0, 1, 1])
    >>> head
    ExactHead(2 atoms, 1 variable)
    >>> head.weights
    (Fraction(1, 1), Fraction(1, 1))
    """

    exponents: tuple[tuple[int, ...], ...]
    weights: Row
    values: tuple[Fraction, ...] | tuple[Row, ...]
    basis: tuple[tuple[float | Fraction, ...], ...] | None

    def __init__(
        self, exponents: Any, weights: Any, values: Any, basis: Any = None, *, exact_floats: bool = False
    ):
        keys = [_integers(row, "exponents", exact_floats) for row in rows(exponents, "exponents")]
        w = [rational(x, "weights", exact_floats) for x in sequence(weights, "weights")]
        v = [
            tuple(rational(x, "values", exact_floats) for x in (row if is_row(row) else [row]))
            for row in sequence(values, "values")
        ]
        scalar = not any(map(is_row, sequence(values, "values")))
        n = len(keys)
        if len(w) != n or len(v) != n:
            raise ValueError(
                f"There are {n} exponents, {len(w)} weights and {len(v)} values; give one of each per atom."
            )
        if len(set(map(len, keys))) > 1 or not keys[0]:
            raise ValueError("exponents has rows of different or zero length; give an (n, rho) table.")
        if len(set(map(len, v))) > 1 or not v[0] or len({is_row(x) for x in values}) > 1:
            raise ValueError("values has more than one shape; give (n,) or an (n, p) table with p >= 1.")
        for i, weight in enumerate(w):
            if weight <= 0:
                raise ValueError(f"weights[{i}] is {weight}; weights must be positive (or drop the atom).")
        merged: dict[tuple[int, ...], tuple[Fraction, Row]] = {}
        for key, weight, value in zip(keys, w, v, strict=True):
            if key in merged:
                mass, mean = merged[key]
                value = tuple(
                    (mass * m + weight * x) / (mass + weight) for m, x in zip(mean, value, strict=True)
                )
                weight += mass
            merged[key] = (weight, value)
        atoms = sorted(merged.items())
        means = tuple(mean for _, (_, mean) in atoms)
        if basis is not None:
            basis = _basis(basis, len(keys[0]))
        object.__setattr__(self, "exponents", tuple(key for key, _ in atoms))
        object.__setattr__(self, "weights", tuple(mass for _, (mass, _) in atoms))
        object.__setattr__(self, "values", tuple(m[0] for m in means) if scalar else means)
        object.__setattr__(self, "basis", basis)

    def __repr__(self) -> str:
        n, rho = len(self.exponents), len(self.exponents[0])
        return f"ExactHead({n} atom{'s'[: n > 1]}, {rho} variable{'s'[: rho > 1]})"

    @property
    def num_atoms(self) -> int:
        """Number of different keys."""
        return len(self.exponents)

    @property
    def value_shape(self) -> tuple[int, ...]:
        """``(p,)``, or ``()`` for scalar values."""
        first = self.values[0]
        return (len(first),) if isinstance(first, tuple) else ()

    def value_rows(self) -> tuple[Row, ...]:
        """Values as rows of length p (1 for scalar values)."""
        return tuple(v if isinstance(v, tuple) else (v,) for v in self.values)

    def data(self) -> HeadData:
        """The head as the checker reads it."""
        return HeadData(self.exponents, self.weights, self.value_rows())

    def at(self, x: Sequence[Any]) -> Fraction | Row:
        """The exact value at a point x = exp(q) with positive rational coordinates.

        >>> exact_sigmoid_sum(1)[0].at([2])  # sigma(log 2)
        Fraction(2, 3)
        """
        point = [rational(c, "x") for c in x]
        if len(point) != len(self.exponents[0]) or min(point) <= 0:
            raise ValueError(f"x must hold {len(self.exponents[0])} positive rational coordinates.")
        masses: list[Fraction] = [
            w * math.prod((Fraction(c**e) for c, e in zip(point, key, strict=True)), start=Fraction(1))
            for key, w in zip(self.exponents, self.weights, strict=True)
        ]
        total = sum(masses, start=Fraction(0))
        columns = zip(*self.value_rows(), strict=True)
        row = tuple(
            sum((m * v for m, v in zip(masses, column, strict=True)), start=Fraction(0)) / total
            for column in columns
        )
        return row if self.value_shape else row[0]

    def to_head(self) -> "Head":
        """The head in floating point, for use with JAX (default float precision; loads JAX).

        >>> float(exact_sigmoid_sum(1)[0].to_head()([0.0]))
        0.5
        """
        from ..heads import Head

        rho = len(self.exponents[0])
        basis = self.basis or tuple(tuple(int(i == j) for j in range(rho)) for i in range(rho))
        keys = [
            [
                float(sum(e * b for e, b in zip(key, column, strict=True)))
                for column in zip(*basis, strict=True)
            ]
            for key in self.exponents
        ]
        logs = [math.log(w.numerator) - math.log(w.denominator) for w in self.weights]
        top = max(logs)
        values = [tuple(map(float, v)) if isinstance(v, tuple) else float(v) for v in self.values]
        return Head(keys, values, [x - top for x in logs])


def exact_sigmoid_sum(d: int) -> list[ExactHead]:
    """W_d(q) = sum_{j<=d} sigma(q_j) as d exact heads: 2d head-atom terms, 2^d atoms as one head [M].

    [M] Matsuda, "Exact Fusion of Softmax Attention Heads Can Require Exponentially Many Atoms", 2026.

    >>> [h.exponents for h in exact_sigmoid_sum(2)]
    [((0, 0), (1, 0)), ((0, 0), (0, 1))]
    """
    if isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 1:
        raise ValueError(f"d must be a positive integer, got {d!r}.")
    return [ExactHead([[0] * d, [int(i == j) for i in range(d)]], [1, 1], [0, 1]) for j in range(d)]


def rational(value: Any, name: str, exact_floats: bool = False) -> Fraction:
    """One exact number.

    Raises:
        ValueError: floats without ``exact_floats``, NaN, infinity, or anything that is not a number.
    """
    if type(value) is Fraction:
        return value
    if type(value) is int:
        return Fraction(value)
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} holds the truth value {value}; give numbers.")
    if isinstance(value, int | np.integer):
        return Fraction(int(value))
    if isinstance(value, float | np.floating):
        if not exact_floats:
            raise ValueError(
                f"{name} holds the float {value!r}; exact data needs integers, fractions or text such as "
                '"1/3" or "0.1" (or pass exact_floats=True to mean its exact binary value).'
            )
        if not math.isfinite(value):
            raise ValueError(f"{name} holds {value!r}; give finite numbers.")
        return Fraction(float(value))
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        try:
            return Fraction(value.replace(" ", ""))
        except ZeroDivisionError:
            raise ValueError(f"{name} holds {value!r}, which divides by zero.") from None
    raise ValueError(f'{name} holds {value!r}; give integers, fractions or text such as "2/3" or "0.25".')


def sequence(value: Any, name: str) -> list[Any]:
    """A non-empty list, tuple or array as a list."""
    if hasattr(value, "__array__"):  # NumPy or JAX
        value = np.asarray(value)
        value = list(value) if value.ndim else value
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list, got {type(value).__name__}.")
    if not value:
        raise ValueError(f"{name} is empty; a head needs at least one atom.")
    return list(value)


def rows(value: Any, name: str) -> list[list[Any]]:
    """An ``(n, d)`` table as lists; ``(n,)`` is read as d = 1."""
    items = sequence(value, name)
    if any(is_row(x) for x in items) and not all(is_row(x) for x in items):
        raise ValueError(f"{name} mixes numbers and rows; give a table with one row per atom.")
    return [list(x) if is_row(x) else [x] for x in items]


def is_row(value: Any) -> bool:
    """Whether this is a list of numbers rather than a number."""
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0


def _integers(row: Sequence[Any], name: str, exact_floats: bool) -> tuple[int, ...]:
    if all(type(x) is int for x in row):
        return tuple(row)
    numbers = [rational(x, name, exact_floats) for x in row]
    for x in numbers:
        if x.denominator != 1:
            raise ValueError(f"{name} holds {x}; exponents are integers (from_keys takes rational keys).")
    return tuple(int(x) for x in numbers)


def _basis(basis: Any, rho: int) -> tuple[tuple[float | Fraction, ...], ...]:
    table = rows(basis, "basis")
    if len(table) != rho or len(set(map(len, table))) > 1 or not table[0]:
        raise ValueError(f"basis must have one row of d numbers for each of the {rho} variables.")
    return tuple(
        tuple(float(x) if isinstance(x, float) else rational(x, "basis", True) for x in row) for row in table
    )
