"""Lower bounds read off the heads themselves, without writing out a polynomial or proving one reduced.

They serve keys so far apart that no common factor of the denominators can be looked for.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ._errors import InvalidWitness
from ._fusion import HeadData


def valuation_bound(heads: Sequence[HeadData], data: Mapping[str, Any]) -> int:
    """2^|E| for heads c_j sigma(a_j q) + constant on a line; 1 if there are other heads.

    E holds the 2-adic valuations e for which the sum of c_j / a_j over v2(a_j) = e is not zero. In
    x = exp(q), c sigma(a q) has the simple pole with residue c z / a at each z with z^a = -1, so those of W
    at the primitive 2^(e+1)-th roots of unity survive for e in E: they are poles exactly for v2(a_j) = e.
    A single head's D vanishes there, hence its masses in the classes r and r + 2^e modulo 2^(e+1) agree.
    Weights are positive, so each non-empty class modulo 2^e splits into two, for every e in E.
    """
    residues: dict[int, list[Fraction]] = {}
    for head in heads:
        if len(head.exponents[0]) != 1:
            raise InvalidWitness("This bound needs exactly one variable.")
        if len(set(head.exponents)) == 1:
            continue
        if len(head.exponents) != 2 or head.weights[0] != head.weights[1]:
            return 1
        (low, below), (high, above) = sorted(zip(head.exponents, head.values, strict=True))
        a = high[0] - low[0]
        valuation = (a & -a).bit_length() - 1
        found = residues.setdefault(valuation, [Fraction(0)] * len(below))
        for i, (x, y) in enumerate(zip(below, above, strict=True)):
            found[i] += (y - x) / a
    return 2 ** sum(any(row) for row in residues.values())


def limit_bound(heads: Sequence[HeadData], data: Mapping[str, Any]) -> int:
    """Number of different limits of the sum along rays.

    Where every head has a unique largest key in the direction u, the sum tends to the same limit along all
    rays near u. A single head tends along a generic one of them to the value of one atom, so different
    limits belong to different atoms.
    """
    limits = set()
    for u in data["directions"]:
        if any(type(x) is not int for x in u):
            raise InvalidWitness("Directions must be integers.")
        total = [Fraction(0)] * len(heads[0].values[0])
        for head in heads:
            heights = [sum(x * y for x, y in zip(u, e, strict=True)) for e in head.exponents]
            top = max(heights)
            if heights.count(top) > 1:
                raise InvalidWitness("A head has no unique largest key in a direction.")
            total = [a + b for a, b in zip(total, head.values[heights.index(top)], strict=True)]
        limits.add(tuple(total))
    return max(1, len(limits))
