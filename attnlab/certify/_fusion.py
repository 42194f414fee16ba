"""Exact heads inside certificates: their text format, their polynomials, and sums over blocks.

A head with integer keys e_i, weights w_i > 0 and values v_i is N/D with D = sum w_i x^{e_i} and
N = sum w_i v_i x^{e_i}, a ratio of Laurent polynomials in x = exp(q). Everything is an integer:
weights are scaled per head, values by one common denominator. Exponents are shifted to be
non-negative (a head does not change when all its keys move together), because the polynomial
library accepts no negative exponent.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import flint
import numpy as np

from ._errors import InvalidWitness

Exponent = tuple[int, ...]
Terms = dict[Exponent, int]
Poly = Any  # flint.fmpz_mpoly, which has no type stubs


@dataclass(frozen=True)
class HeadData:
    """The atoms of one exact head: (n, rho) integers, (n,) positive rationals, (n, p) rationals."""

    exponents: tuple[Exponent, ...]
    weights: tuple[Fraction, ...]
    values: tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Ratio:
    """One head, or a sum of heads, as numerators (one per value coordinate) over a denominator."""

    numerators: tuple[Poly, ...]
    denominator: Poly


@dataclass(frozen=True)
class Block:
    """Some heads and the ratio that their sum is claimed to be."""

    heads: tuple[int, ...]
    ratio: Ratio


def encode_heads(heads: Sequence[HeadData]) -> np.ndarray:
    """Heads as JSON text in a unicode array (integers of any size survive, see ``whole``)."""
    return text(
        [
            {
                "exponents": [[_number(i) for i in e] for e in h.exponents],
                "weights": [fraction_text(w) for w in h.weights],
                "values": [[fraction_text(v) for v in row] for row in h.values],
            }
            for h in heads
        ]
    )


def decode_heads(array: np.ndarray) -> list[HeadData]:
    """The heads in a certificate, checked: one dimension, one value length, positive weights."""
    heads = [
        HeadData(
            tuple(_exponent(e) for e in head["exponents"]),
            tuple(fraction(w) for w in head["weights"]),
            tuple(tuple(fraction(v) for v in row) for row in head["values"]),
        )
        for head in untext(array)
    ]
    if not heads or any(not h.exponents for h in heads):
        raise InvalidWitness("There are no heads, or a head has no atoms.")
    shapes = {(len(e), len(v)) for h in heads for e, v in zip(h.exponents, h.values, strict=True)}
    if len(shapes) > 1 or 0 in next(iter(shapes)):
        raise InvalidWitness("The atoms of the heads differ in dimension or in value length.")
    for h in heads:
        if len(h.weights) != len(h.exponents) or min(h.weights) <= 0:
            raise InvalidWitness("A head needs one positive weight per atom.")
    return heads


def claim_and_heads(
    claim: Mapping[str, Any], subject: Mapping[str, np.ndarray]
) -> tuple[int, list[HeadData], int]:
    """What every certificate of a fusion starts with: the claimed number of atoms, the heads of the sum, and
    the common denominator of their values."""
    heads = decode_heads(subject["heads"])
    return claimed_atoms(claim), heads, value_scale(heads)


def claimed_atoms(claim: Mapping[str, Any]) -> int:
    """The number of atoms in a claim, which must be a positive integer."""
    atoms = claim["atoms"]
    if type(atoms) is not int or atoms < 1:
        raise InvalidWitness(f"claim atoms must be a positive integer, not {atoms!r}.")
    return atoms


def context(variables: int) -> Any:
    """The polynomial ring over Z in this many variables."""
    return flint.fmpz_mpoly_ctx.get(("x", variables), "lex")


def value_scale(heads: Sequence[HeadData]) -> int:
    """The common denominator of all values."""
    return lcm(*(v.denominator for h in heads for row in h.values for v in row))


def ratios(heads: Sequence[HeadData], scale: int) -> list[Ratio]:
    """Each head times ``scale`` as polynomials with integer coefficients; equal keys are merged."""
    ctx = context(len(heads[0].exponents[0]))
    result = []
    for h in heads:
        low = [min(column) for column in zip(*h.exponents, strict=True)]
        keys = [tuple(a - b for a, b in zip(e, low, strict=True)) for e in h.exponents]
        unit = lcm(*(w.denominator for w in h.weights))
        denominator: Terms = {}
        numerators: list[Terms] = [{} for _ in h.values[0]]
        for key, w, row in zip(keys, h.weights, h.values, strict=True):
            denominator[key] = denominator.get(key, 0) + int(w * unit)
            for terms, v in zip(numerators, row, strict=True):
                terms[key] = terms.get(key, 0) + int(w * unit * v * scale)
        result.append(Ratio(tuple(ctx.from_dict(t) for t in numerators), ctx.from_dict(denominator)))
    return result


def add(parts: Sequence[Ratio]) -> Ratio:
    """The sum of ratios over the plain product of their denominators, by halving."""
    if len(parts) == 1:
        return parts[0]
    a, b = add(parts[: len(parts) // 2]), add(parts[len(parts) // 2 :])
    numerators = tuple(
        x * b.denominator + y * a.denominator for x, y in zip(a.numerators, b.numerators, strict=True)
    )
    return Ratio(numerators, a.denominator * b.denominator)


def block_items(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Blocks as data for JSON."""
    return [
        {
            "heads": list(b.heads),
            "numerators": [_terms(n) for n in b.ratio.numerators],
            "denominator": _terms(b.ratio.denominator),
        }
        for b in blocks
    ]


def encode_blocks(blocks: Sequence[Block]) -> np.ndarray:
    """Blocks as JSON text."""
    return text(block_items(blocks))


def decode_blocks(array: np.ndarray, heads: Sequence[Ratio]) -> list[Block]:
    """The blocks in a JSON text array, checked as by ``checked_blocks``."""
    return checked_blocks(untext(array), heads)


def checked_blocks(items: Any, heads: Sequence[Ratio]) -> list[Block]:
    """The blocks of a certificate, after checking that each one equals the sum of its heads.

    The blocks must partition the heads, and numerator * product = denominator * (sum over the
    product) must hold identically in every block and value coordinate.
    """
    ctx = heads[0].denominator.context()
    blocks = [
        Block(
            tuple(int(h) for h in item["heads"]),
            Ratio(
                tuple(_poly(ctx, n) for n in item["numerators"]),
                _poly(ctx, item["denominator"]),
            ),
        )
        for item in items
    ]
    if sorted(h for b in blocks for h in b.heads) != list(range(len(heads))):
        raise InvalidWitness("The blocks do not contain every head exactly once.")
    for b in blocks:
        plain = add([heads[h] for h in b.heads])
        if b.ratio.denominator == 0 or len(b.ratio.numerators) != len(plain.numerators):
            raise InvalidWitness("A block has a zero denominator or too few numerators.")
        for mine, theirs in zip(b.ratio.numerators, plain.numerators, strict=True):
            if mine * plain.denominator != b.ratio.denominator * theirs:
                raise InvalidWitness(f"The block of heads {list(b.heads)} is not their sum.")
    return blocks


def text(data: Any) -> np.ndarray:
    """JSON text in a zero-dimensional unicode array.

    Raises:
        ValueError: integers too long for Python to write (more than about 4,300 digits).
    """
    try:
        return np.array(json.dumps(data, separators=(",", ":")))
    except ValueError:
        raise ValueError("keys lead to integers of more than 4,300 digits; use smaller keys.") from None


def untext(array: np.ndarray) -> Any:
    """The data in a JSON text array."""
    if array.dtype.kind != "U" or array.shape != ():
        raise InvalidWitness("Exact data must be JSON in a single text entry.")
    try:
        return json.loads(str(array[()]))
    except RecursionError:
        raise InvalidWitness("The JSON of the witness is nested too deeply.") from None


def whole(value: Any) -> int:
    """An integer from JSON: a number, or hexadecimal text for those with thousands of digits.

    (Python refuses to read or write very long decimal integers.)
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value, 16 if "x" in value else 10)
    if type(value) is not int:
        raise InvalidWitness(f"{str(value)[:40]!r} stands where an integer belongs.")
    return value


def fraction(value: Any) -> Fraction:
    """A rational number from JSON text such as ``"-2/3"``."""
    if not isinstance(value, str) or value.count("/") > 1:
        raise InvalidWitness('Weights, values and points must be text such as "2/3".')
    numerator, _, denominator = value.partition("/")
    below = whole(denominator) if "/" in value else 1
    if below <= 0:
        raise InvalidWitness("A fraction has a denominator that is not positive.")
    return Fraction(whole(numerator), below)


_WHOLE = re.compile("-?(0x[0-9a-f]+|[0-9]{1,4000})")


def _number(value: int) -> int | str:
    return int(value) if value.bit_length() < 10_000 else hex(value)


def fraction_text(value: Fraction) -> str:
    """Text that ``fraction`` reads back."""
    return f"{_number(value.numerator)}" + f"/{_number(value.denominator)}" * (value.denominator > 1)


def _terms(poly: Poly) -> list[Any]:
    return [[[_number(int(i)) for i in e], _number(int(c))] for e, c in poly.to_dict().items()]


def _poly(ctx: Any, terms: Any) -> Poly:
    found: Terms = {}
    for exponent, coefficient in terms:
        key = _exponent(exponent)
        if len(key) != ctx.nvars() or key in found or min(key) < 0:
            raise InvalidWitness("A polynomial has a malformed or repeated term.")
        found[key] = whole(coefficient)
    return ctx.from_dict(found)


def _exponent(values: Any) -> Exponent:
    return tuple(v if type(v) is int else whole(v) for v in values)
