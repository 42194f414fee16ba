"""Kind ``fusion-lower``: every single head that equals the sum of the heads has at least m atoms.

Let W = P/Q in lowest terms (Laurent polynomials in x = exp(q), one numerator per value coordinate) and
let a single head with denominator D equal W. Then D has non-negative coefficients and Q divides D.
The witness splits the heads into *parts* whose key differences span independent subspaces. Each part
has its own bound; the claim is their product. Steps of the proof:

Map. Any linear map of keys is a restriction of W to a subspace of queries; the restricted single head has
no more atoms. Part by part, keys may be replaced by integer images, matrix (key - first key) / divisor.

Blocks. The mapped heads of a part are grouped into sums P_b/Q_b (checked identities). If each is reduced
and the Q_b are pairwise coprime, the reduced denominator of the part is the product of the Q_b: a
prime factor of Q_b is a pole of this block and of no other. Coprimality: see ``_fusion_coprime``.

Bounds of one part. ``vertices``: the Newton polytope of D is a Minkowski sum with that of Q, which has at
least as many vertices; a vertex of Newt(Q) has exactly one vertex of each Newt(Q_b), so integer directions
with different tuples of unique maximisers expose different vertices. ``radix``, ``ray``, ``exhaustive``:
in one variable, see ``_fusion_line``. ``valuations`` and ``limits`` need no blocks, see ``_fusion_direct``.

Product. Let x be the variables of one part and y the others. The coefficient D_s(y) of x^s in D is
non-negative and divisible by the reduced denominator in y. All but ``exhaustive`` and ``limits`` use
nothing else about a head, so they bound the atoms of every D_s, and by induction their product does.
At fixed positive y, D is a single head for the first part plus a constant, so the number of different s is at
least the bound of that part, whatever its method. Hence one part may use either of those two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import flint
import numpy as np

from ._errors import InvalidWitness
from ._fusion import (
    Block,
    HeadData,
    Poly,
    Terms,
    checked_blocks,
    claim_and_heads,
    ratios,
    untext,
)
from ._fusion_coprime import coprime
from ._fusion_direct import limit_bound, valuation_bound
from ._fusion_line import exhaustive_bound, radix_bound, ray_bound
from ._verdict import Verdict, failed

LARGEST_TABLE = 2**22  # products <u, e> computed at a time
METHODS = {
    "vertices": "the vertices of the Newton polytope of its denominator",
    "radix": "equal masses in residue classes",
    "ray": "zeros on a ray",
    "exhaustive": "exhaustive search over supports",
    "valuations": "poles at roots of unity of 2-power order",
    "limits": "different limits along rays",
}
ALONE = {"exhaustive", "limits"}  # these bounds do not multiply with each other


def check_lower(
    claim: Mapping[str, Any],
    witness: Mapping[str, np.ndarray],
    subject: Mapping[str, np.ndarray],
    arb: bool,
) -> Verdict:
    """Claim: ``{"atoms": m}``. Subject: ``heads``. Everything is exact, so ``arb`` changes nothing."""
    claimed, heads, scale = claim_and_heads(claim, subject)
    parts = untext(witness["parts"])
    if sorted(h for part in parts for h in part["heads"]) != list(range(len(heads))):
        raise InvalidWitness("The parts do not contain every head exactly once.")
    groups = [[heads[h] for h in part["heads"]] for part in parts]
    if sum(map(_rank, groups)) != _rank(heads):
        raise InvalidWitness("The key differences of the parts are not independent.")
    if sum(part["method"] in ALONE for part in parts) > 1:
        raise InvalidWitness("Only one part may be bounded by exhaustive search or by limits.")
    atoms = prod(_bound(group, scale, part) for group, part in zip(groups, parts, strict=True))

    why = " and ".join(METHODS[m] for m in sorted({part["method"] for part in parts}))
    statement = (
        f"Every single head that equals the sum of the {len(heads)} heads has at least {atoms} atoms ({why})."
    )
    bound = float(atoms) if atoms < 2**53 else float(np.nextafter(float(min(atoms, 10**300)), 0))
    if atoms < claimed:
        return failed(f"{statement} The claim of {claimed} is larger.", bound, float(atoms - claimed))
    return Verdict(True, statement, bound, float(min(atoms - claimed, 2**53)))


def _bound(heads: Sequence[HeadData], scale: int, part: Mapping[str, Any]) -> int:
    """The bound of one part, recomputed from its heads and its witness."""
    method, data = part["method"], part["data"]
    mapped = mapped_heads(heads, part["matrix"], part["divisor"])
    if method == "valuations":
        return valuation_bound(mapped, data)
    if method == "limits":
        return limit_bound(mapped, data)
    blocks = checked_blocks(part["blocks"], ratios(mapped, scale))
    if method == "exhaustive":  # uses N Q = P D only, so the fraction need not be reduced
        return exhaustive_bound(blocks, data)
    if not reduced(blocks, part["mix"], part["substitutions"]):
        raise InvalidWitness("It is not shown that the blocks are reduced and pairwise coprime.")
    if method == "vertices":
        return count_vertices([terms(b.ratio.denominator) for b in blocks], data["directions"])
    if method == "radix":
        return radix_bound(blocks, data)
    if method == "ray":
        return ray_bound(blocks, data)
    raise InvalidWitness(f"Unknown method {method!r}; known: {', '.join(METHODS)}.")


def mapped_heads(heads: Sequence[HeadData], matrix: Any, divisor: Any) -> list[HeadData]:
    """Heads with keys replaced by ``matrix (key - first key) / divisor``, which must be integers."""
    if type(divisor) is not int or divisor < 1 or not matrix:
        raise InvalidWitness("A map of keys needs rows and a positive divisor.")
    if any(type(x) is not int for row in matrix for x in row):
        raise InvalidWitness("A map of keys must have integer entries.")
    result = []
    for head in heads:
        first = head.exponents[0]
        moved = []
        for e in head.exponents:
            difference = [a - b for a, b in zip(e, first, strict=True)]
            image = [sum(x * d for x, d in zip(row, difference, strict=True)) for row in matrix]
            if any(x % divisor for x in image):
                raise InvalidWitness("A map of keys gives keys that are not integers.")
            moved.append(tuple(x // divisor for x in image))
        result.append(replace(head, exponents=tuple(moved)))
    return result


def reduced(blocks: Sequence[Block], mix: Sequence[int], substitutions: Sequence[Any]) -> bool:
    """Whether every block is shown reduced and the denominators are shown pairwise coprime.

    A block with several numerators is reduced if one integer combination of them (``mix``) shares
    no factor with the denominator.
    """
    if any(type(x) is not int for x in mix) or any(
        type(x) is not int for pair in substitutions for row in pair for x in row
    ):
        raise InvalidWitness("The proof that the fraction is reduced must hold integers.")
    below = [terms(b.ratio.denominator) for b in blocks]
    above = [
        terms(sum((m * n for m, n in zip(mix, b.ratio.numerators, strict=True)), 0 * b.ratio.denominator))
        for b in blocks
    ]
    pairs = [*zip(below, above, strict=True), *combinations(below, 2)]
    return all(len(a) == 1 or any(coprime(a, b, s) for s in substitutions) for a, b in pairs)


def count_vertices(supports: Sequence[Mapping[tuple[int, ...], int]], directions: Any) -> int:
    """Number of different tuples of unique maximisers, one per support, over integer directions."""
    if any(type(x) is not int for u in directions for x in u):
        raise InvalidWitness("Directions must be integers.")
    u = np.array(directions, dtype=object)
    tables = [np.array(list(s), dtype=object) for s in supports]
    if u.ndim != 2 or not len(u) or any(t.shape[1] != u.shape[1] for t in tables):
        raise InvalidWitness("There are no directions, or one has the wrong length.")
    step = max(1, LARGEST_TABLE // max(map(len, tables)))
    return len({row for i in range(0, len(u), step) for row in _maximisers(tables, u[i : i + step])})


def _maximisers(tables: Sequence[np.ndarray], u: np.ndarray) -> list[tuple[int, ...]]:
    """Positions of the unique maximisers, for the directions for which every table has one."""
    unique, chosen = np.ones(len(u), dtype=bool), []
    for points in tables:
        heights = _product(u, points)
        largest = heights == heights.max(axis=1)[:, None]
        unique &= largest.sum(axis=1) == 1
        chosen.append(largest.argmax(axis=1))
    return [tuple(row) for row in np.stack(chosen, axis=1)[unique].tolist()]


def terms(poly: Poly) -> Terms:
    """A polynomial as {exponents: coefficient} in Python integers."""
    return {tuple(map(int, e)): int(c) for e, c in poly.to_dict().items()}


def _product(u: np.ndarray, points: np.ndarray) -> np.ndarray:
    """All <u, e>, in machine integers where they cannot overflow."""
    size = max(map(abs, u.flat)) * max(map(abs, points.flat)) * u.shape[1]
    dtype = np.int64 if size < 2**62 else object
    return u.astype(dtype) @ points.astype(dtype).T


def _rank(heads: Sequence[HeadData]) -> int:
    rows = [[a - b for a, b in zip(e, h.exponents[0], strict=True)] for h in heads for e in h.exponents]
    return int(flint.fmpz_mat(rows).rank())
