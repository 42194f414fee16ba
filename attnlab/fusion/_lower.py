"""Lower bounds of one part, each with the witness that the checker needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..certify._fusion import block_items
from ..certify._fusion_lower import count_vertices, terms
from ._lattice import Key
from ._parts import Part, Reduced
from ._vertices import exposing_directions


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


def vertex_bound(part: Part, deadline: float) -> PartBound:
    """The number of vertices of the Newton polytope of the reduced denominator."""
    supports = [terms(b.ratio.denominator) for b in part.reduced.blocks]
    directions = exposing_directions([list(s) for s in supports], deadline)
    data = {"directions": [list(u) for u in directions]}
    return bound_of(part, part.reduced, None, count_vertices(supports, data["directions"]), "vertices", data)
