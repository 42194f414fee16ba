"""Kind ``fusion-upper``: one head with m atoms equals the sum of the heads, everywhere.

Witness: ``head``, the fused head, and ``blocks``, ratios N_b/D_b for groups of heads (so that sums
with many independent heads are checked without multiplying everything by everything). Checked in
integers: every block equals the sum of its heads, the fused head is the sum of the blocks, its
weights are positive and its keys distinct. An atom has weight D_e and value N_e/D_e, so the support
of N must lie in that of D.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import InvalidWitness
from ._fusion import Poly, add, claim_and_heads, decode_blocks, decode_heads, ratios
from ._verdict import Verdict, failed


def check_upper(
    claim: Mapping[str, Any],
    witness: Mapping[str, np.ndarray],
    subject: Mapping[str, np.ndarray],
    arb: bool,
) -> Verdict:
    """Claim: ``{"atoms": m}``. Subject: ``heads``. Everything is exact, so ``arb`` changes nothing."""
    claimed, heads, scale = claim_and_heads(claim, subject)
    total = add([b.ratio for b in decode_blocks(witness["blocks"], ratios(heads, scale))])
    (fused,) = decode_heads(witness["head"])
    if len(fused.values[0]) != len(total.numerators):
        raise InvalidWitness("The fused head has values of another length than the heads.")

    low = [min(map(int, column)) for column in zip(*total.denominator.monoms(), strict=True)]
    weights, *sums = (_shifted(poly, low) for poly in (total.denominator, *total.numerators))
    if any(w <= 0 for w in weights.values()):
        return failed("A weight of the fused head is not positive.")
    if any(not n.keys() <= weights.keys() for n in sums):
        return failed("The fused head would need an atom of weight zero.")
    low = [min(column) for column in zip(*fused.exponents, strict=True)]
    given = {}
    for e, w, row in zip(fused.exponents, fused.weights, fused.values, strict=True):
        given[tuple(a - b for a, b in zip(e, low, strict=True))] = (w, row)
    if len(given) != len(fused.exponents) or given.keys() != weights.keys():
        return failed("The keys of the fused head are not those of the sum.")
    for e, (w, row) in given.items():
        if w != weights[e] or any(
            weights[e] * v.numerator * scale != n.get(e, 0) * v.denominator
            for v, n in zip(row, sums, strict=True)
        ):
            return failed("A weight or value of the fused head is not that of the sum.")
    atoms = len(weights)
    statement = f"A single head with {atoms} atoms equals the sum of the {len(heads)} heads exactly."
    if atoms > claimed:
        return failed(f"{statement} The claim of {claimed} is smaller.", atoms, claimed - atoms)
    return Verdict(True, statement, float(atoms), float(claimed - atoms))


def _shifted(poly: Poly, low: Sequence[int]) -> dict[tuple[int, ...], int]:
    """Terms of a polynomial with the exponent ``low`` moved to the origin."""
    found = {tuple(map(int, e)): int(c) for e, c in poly.to_dict().items()}
    if not any(low):
        return found
    return {tuple(a - b for a, b in zip(e, low, strict=True)): c for e, c in found.items()}
