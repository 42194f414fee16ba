"""Lower bounds of one part, each with the witness that the checker needs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any

from ..certify._fusion import HeadData, Ratio, add, block_items, ratios
from ..certify._fusion_direct import limit_bound, valuation_bound
from ..certify._fusion_lower import count_vertices, terms
from ._lattice import Key
from ._line import directions, minimum, radices, ray
from ._parts import Part, Reduced, reduce
from ._vertices import exposing_directions

CANDIDATES = 200  # restrictions to lines that are looked at per part
LINES = 40  # of these used for bounds by zeros
SEARCHED = 10  # searches to be continued at length

Line = tuple[list[Key] | None, Reduced]


@dataclass(frozen=True)
class PartBound:
    """At least ``atoms`` atoms for one part, and the entry of the certificate that proves it."""

    atoms: int
    method: str
    witness: dict[str, Any]


def bound_of(
    part: Part, reduced: Reduced, rows: Sequence[Key] | None, atoms: int, method: str, data: dict[str, Any]
) -> PartBound:
    """Assemble the certificate entry; ``rows`` is the restriction that leads from ``part`` to ``reduced``."""
    _, matrix, divisor = part.mapped(rows)
    witness = {
        "heads": list(part.heads),
        "matrix": [list(row) for row in matrix],
        "divisor": divisor,
        "blocks": block_items(reduced.blocks),
        "mix": list(reduced.mix),
        "substitutions": [[list(u), list(c)] for u, c in reduced.substitutions],
        "method": method,
        "data": data,
    }
    return PartBound(atoms, method, witness)


@dataclass(frozen=True)
class Lower:
    """What was proved about one part.

    Attributes:
        certain: the best bound that multiplies with those of other parts.
        searched: the best bound by exhaustive search, if better (one part of a sum may use it).
        head: a smallest head of the part, if the search came upon one.
        vertices: the bound by vertices alone.
    """

    certain: PartBound
    searched: PartBound | None
    head: Ratio | None
    vertices: int


def lower_bound(part: Part, scale: int, top: int, deadline: float) -> Lower:
    """The best bound of one part: vertices, then lines, until ``top`` is reached or time is up.

    Restricting queries to a line cannot raise the number of atoms [M], so bounds in one variable hold for
    the part. The line itself is the first candidate in one variable.
    """
    if not part.reduced.certain:
        return _direct_bounds(part, deadline)
    best = _vertex_bound(part, deadline)
    vertices = best.atoms
    if best.atoms >= top:
        return Lower(best, None, None, vertices)
    lines = _lines(part, scale, top, deadline)
    for rows, reduced in lines:
        for bound in _root_bounds(part, rows, reduced):
            best = max(best, bound, key=lambda b: b.atoms)
            if best.atoms >= top:
                return Lower(best, None, None, vertices)
    searched, head = _search_lines(part, lines, best.atoms, top, deadline)
    return Lower(best, searched, head, vertices)


def _search_lines(
    part: Part, lines: Sequence[Line], known: int, top: int, deadline: float
) -> tuple[PartBound | None, Ratio | None]:
    """Exhaustive search on lines: a short try on each, then as long as it takes on those still of use."""
    searched: PartBound | None = None
    waiting = list(lines)
    for patience in (0.5, 1e9):
        reached: list[tuple[int, Line]] = []
        for rows, reduced in waiting:
            until = min(deadline, time.monotonic() + patience)
            atoms, data, head = minimum(reduced.blocks, known, top, until)
            if atoms > known:
                known, searched = atoms, bound_of(part, reduced, rows, atoms, "exhaustive", data)
            if head is not None and rows is None:
                return searched, head
            if known >= top or time.monotonic() > deadline:
                return searched, None
            if head is None:  # otherwise this line has told all it can
                reached.append((atoms, (rows, reduced)))
            if len(reached) == SEARCHED:
                break
        waiting = [line for _, line in sorted(reached, key=lambda item: -item[0])]
    return searched, None


def _vertex_bound(part: Part, deadline: float) -> PartBound:
    """The number of vertices of the Newton polytope of the reduced denominator."""
    supports = [terms(b.ratio.denominator) for b in part.reduced.blocks]
    found = exposing_directions([list(s) for s in supports], deadline)
    data = {"directions": [list(u) for u in found]}
    return bound_of(part, part.reduced, None, count_vertices(supports, data["directions"]), "vertices", data)


def _direct_bounds(part: Part, deadline: float) -> Lower:
    """Bounds that need no polynomials: valuations on the best of a few lines, limits along rays."""
    empty = replace(part.reduced, blocks=(), mix=())
    candidates = (
        [None]
        if len(part.lattice.basis) == 1
        else [[u] for u in islice(directions(len(part.lattice.basis)), LINES)]
    )
    rows = max(candidates, key=lambda r: valuation_bound(part.mapped(r)[0], {}))
    atoms = valuation_bound(part.mapped(rows)[0], {})
    certain = bound_of(part, empty, rows, atoms, "valuations", {})
    mapped = part.mapped()[0]
    found = exposing_directions([list(h.exponents) for h in mapped], deadline)
    data = {"directions": [list(u) for u in found]}
    limits = bound_of(part, empty, None, limit_bound(mapped, data), "limits", data)
    return Lower(certain, limits if limits.atoms > atoms else None, None, 1)


def _root_bounds(part: Part, rows: list[Key] | None, reduced: Reduced) -> Iterator[PartBound]:
    """Bounds in one variable from zeros of the denominator: on the unit circle, and on a ray."""
    pairs = radices(reduced.blocks)
    if pairs:
        yield bound_of(part, reduced, rows, prod(n for _, n in pairs), "radix", {"pairs": pairs})
    direct = valuation_bound(part.mapped(rows)[0], {})
    if direct > prod(n for _, n in pairs):
        yield bound_of(part, replace(reduced, blocks=(), mix=()), rows, direct, "valuations", {})
    atoms, data = ray(reduced.blocks)
    yield bound_of(part, reduced, rows, atoms, "ray", data)


def _lines(part: Part, scale: int, top: int, deadline: float) -> list[Line]:
    """Restrictions to lines, short ones first; the part itself if it is a line.

    Where fewer than ``top`` atoms make up the product of the restricted heads, the line is of less use and
    comes last.
    """
    dim = len(part.lattice.basis)
    if dim == 1:
        return [(None, part.reduced)]
    rated: list[tuple[bool, int, Key, list[HeadData]]] = []
    for u in islice(directions(dim), CANDIDATES):
        mapped, _, _ = part.mapped([u])
        plain = add(ratios(mapped, scale)).denominator
        rated.append((len(plain) < top, int(plain.degrees()[0]), u, mapped))
        if time.monotonic() > deadline:
            break
    chosen = sorted(rated, key=lambda item: item[:3])[:LINES]
    return [([u], reduce(mapped, scale)) for *_, u, mapped in chosen]
