"""Kind ``robust-lower``: how many atoms any head within eps of a sum of heads on all of R^d has at least.

Subject: ``heads``, JSON text with ``keys`` and ``values`` of each head as fractions (weights do not matter).
Witness: ``directions`` (K, d) integers, ``mixtures`` (M, 2) positive integers, and ``pairs``, a list of
``[i, j, [[a, b], ...]]``, all JSON text. Claim: ``{"atoms": m, "eps": "p/q", "norm": "1", "2" or "inf"}``.

Proof. Let a head F stay within eps of the sum W everywhere. Along a ray in a direction for which one of
its keys is the largest, F tends to the value of that atom; such directions are dense, and those of one atom
form a convex cone. W tends to the sum of the values at the largest keys, the same in all directions near
one for which every head has a unique largest key. So move the K directions a little until F has a largest
key in each of them. If two belong to the same atom, so does the segment between them, hence along it (ends
included) all limits of W are within eps of that atom's value, and within 2 eps of each other. Two
directions whose segment meets two limits of W more than 2 eps apart therefore belong to different atoms.
The checker finds two such limits for every pair of the K directions: at the ends, at the common mixtures, or
at the points that ``pairs`` gives. All comparisons are made in integers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from ._errors import InvalidWitness
from ._fusion import claimed_atoms, fraction, untext, whole
from ._verdict import Verdict, failed

NORMS = {"1": 1.0, "2": 2.0, "inf": math.inf}
MOST = 8192  # directions; all pairs are compared

Table = Mapping[tuple[Fraction, ...], tuple[Fraction, ...]]  # {key: value} of one head


@dataclass(frozen=True)
class Limits:
    """Limits of the sum along rays; per head integer keys (n, d) and values (n, p), scaled to integers."""

    keys: list[np.ndarray]
    values: list[np.ndarray]

    @staticmethod
    def of(heads: Sequence[Table], scale: int) -> "Limits":
        """Keys times one common positive factor, which changes no limit; values times ``scale``."""
        unit = lcm(*(x.denominator for table in heads for key in table for x in key))
        keys = [np.array([[int(x * unit) for x in key] for key in table], dtype=object) for table in heads]
        values = [
            np.array([[int(x * scale) for x in row] for row in table.values()], dtype=object)
            for table in heads
        ]
        return Limits(keys, values)

    def at(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Limits (k, p) along directions (k, d), and where every head has a unique largest key."""
        unique = np.ones(len(u), dtype=bool)
        total = np.zeros((len(u), self.values[0].shape[1]), dtype=object)
        for keys, values in zip(self.keys, self.values, strict=True):
            heights = products(u, keys)
            largest = heights == heights.max(axis=1)[:, None]
            unique &= largest.sum(axis=1) == 1
            total = total + values[largest.argmax(axis=1)]
        return total, unique


@dataclass(frozen=True)
class Apart:
    """Whether limits (in scaled integers) differ by more than ``gap`` in the norm."""

    gap: int
    norm: float

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        difference = np.abs(a - b)
        if self.norm == 2:
            return np.asarray((difference * difference).sum(axis=-1) > self.gap**2, dtype=bool)
        size = difference.sum(axis=-1) if self.norm == 1 else difference.max(axis=-1)
        return np.asarray(size > self.gap, dtype=bool)

    def find(self, rows: np.ndarray) -> tuple[int, int] | None:
        """Positions of two rows that are apart, if there are any."""
        first = {tuple(row): i for i, row in reversed(list(enumerate(rows.tolist())))}
        places, different = list(first.values()), np.array(list(first), dtype=object)
        found = np.argwhere(self(different[:, None], different[None, :]))
        return (places[found[0][0]], places[found[0][1]]) if len(found) else None


def products(u: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """All <u, key> (k, n), in machine integers where they cannot overflow."""
    size = max(map(abs, u.flat)) * max(map(abs, keys.flat)) * u.shape[1]
    dtype = np.int64 if size < 2**62 else object
    return u.astype(dtype) @ keys.astype(dtype).T


def common_scale(heads: Sequence[Table], eps: Fraction) -> int:
    """A factor that makes all values and eps integers."""
    return lcm(eps.denominator, *(x.denominator for table in heads for row in table.values() for x in row))


def lengths(directions: np.ndarray) -> np.ndarray:
    """(K, 1) integers close to the lengths, by which mixtures of directions of any size are balanced."""
    return np.array([[max(1, math.isqrt(int(u @ u)))] for u in directions], dtype=object)


def unsettled(
    i: int,
    others: np.ndarray,
    directions: np.ndarray,
    size: np.ndarray,
    values: np.ndarray,
    limits: Limits,
    apart: Apart,
    mixtures: Sequence[tuple[int, int]],
) -> np.ndarray:
    """Those of ``others`` that neither the ends nor a common mixture with direction i separates from it.

    Arguments:
        directions: (K, d), with ``lengths`` (K, 1) and limits ``values`` (K, p).
        mixtures: pairs (a, b) for the point a u_i / |u_i| + b u_j / |u_j| of the segment, up to rounding.
    """
    others = others[~apart(values[others], values[i])]
    for a, b in mixtures:
        if not len(others):
            break
        met, clear = limits.at(a * size[others] * directions[i] + b * size[i] * directions[others])
        others = others[~(clear & (apart(met, values[i]) | apart(met, values[others])))]
    return others


def check_robust(
    claim: Mapping[str, Any],
    witness: Mapping[str, np.ndarray],
    subject: Mapping[str, np.ndarray],
    arb: bool,
) -> Verdict:
    """Everything is exact, so ``arb`` changes nothing."""
    claimed, eps, norm = claimed_atoms(claim), fraction(claim["eps"]), claim["norm"]
    if eps < 0 or norm not in NORMS:
        raise InvalidWitness(f"claim eps must be at least 0 and norm one of {', '.join(NORMS)}.")
    heads = _decoded(subject["heads"])
    directions = _integer_rows(witness["directions"], len(next(iter(heads[0]))))
    mixtures = [(a, b) for a, b in _integer_rows(witness["mixtures"], 2).tolist()]
    if len(directions) > MOST or any(a < 1 or b < 1 for a, b in mixtures):
        raise InvalidWitness(f"Give at most {MOST} directions, and mixtures of positive integers.")
    extra = {(i, j): points for i, j, points in untext(witness["pairs"])}
    scale = common_scale(heads, eps)
    limits, apart = Limits.of(heads, scale), Apart(int(2 * eps * scale), NORMS[norm])
    values, unique = limits.at(directions)
    if not unique.all():
        raise InvalidWitness("A head has no unique largest key in a direction.")
    size = lengths(directions)
    for i in range(len(directions)):
        rest = np.arange(i + 1, len(directions))
        for j in unsettled(i, rest, directions, size, values, limits, apart, mixtures):
            weights = _integer_rows(extra.get((i, int(j)), []), 2)
            if not len(weights) or (weights < 1).any():
                return failed(f"Directions {i} and {j} are not shown to belong to different atoms.")
            met, clear = limits.at(weights @ np.stack([directions[i], directions[j]]))
            if apart.find(np.concatenate([met[clear], values[[i, j]]])) is None:
                return failed(f"Directions {i} and {j} are not shown to belong to different atoms.")
    atoms = max(1, len(directions))
    statement = (
        f"Every single head within {_short(eps)} (norm {norm}) of the sum of the {len(heads)} heads on all "
        f"of R^{directions.shape[1]} has at least {atoms} atoms, whatever the weights of their atoms."
    )
    if claimed > atoms:
        return failed(f"{statement} The claim of {claimed} is larger.", float(atoms), float(atoms - claimed))
    return Verdict(True, statement, float(atoms), float(atoms - claimed))


def _short(eps: Fraction) -> str:
    """The number, or one with six decimals that is not larger."""
    return str(eps) if eps.denominator < 10**6 else f"{math.floor(eps * 10**6) / 10**6:g} (rounded down)"


def _decoded(array: np.ndarray) -> list[Table]:
    heads = []
    for head in untext(array):
        rows = [tuple(map(fraction, row)) for row in head["keys"]]
        table = dict(zip(rows, (tuple(map(fraction, v)) for v in head["values"]), strict=True))
        if len(table) != len(rows):
            raise InvalidWitness("A head has one key twice.")
        heads.append(table)
    shapes = {(len(k), len(v)) for table in heads for k, v in table.items()}
    if len(shapes) != 1 or 0 in next(iter(shapes)) or not all(heads):
        raise InvalidWitness("The heads must have atoms, of one dimension and one value length.")
    return heads


def _integer_rows(data: Any, length: int) -> np.ndarray:
    """(n, length) Python integers, from JSON text or a list."""
    rows = [[whole(x) for x in row] for row in (untext(data) if isinstance(data, np.ndarray) else data)]
    if any(len(row) != length for row in rows):
        raise InvalidWitness(f"Integers must come in rows of {length}.")
    return np.array(rows, dtype=object).reshape(-1, length)
