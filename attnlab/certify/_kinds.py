"""The table of certificate kinds: which function judges which claim.

A checker takes ``(claim, witness, subject, arb)`` and returns a ``Verdict``; it raises
``InvalidWitness`` when the arrays cannot prove anything.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import (
    _atoms_line,
    _fusion_lower,
    _fusion_upper,
    _interaction,
    _rank,
    _rank_1d,
    _robust_lower,
    _sup_error,
)
from ._errors import CertificateError
from ._verdict import Verdict

Checker = Callable[[Mapping[str, Any], Mapping[str, np.ndarray], Mapping[str, np.ndarray], bool], Verdict]

CHECKERS: dict[str, Checker] = {
    "rank-lower": _rank.check_lower,
    "rank-lower-psd": _rank.check_lower_psd,
    "rank-lower-1d": _rank_1d.check_lower_1d,
    "rank-upper": _rank.check_upper,
    "factor-radius": _interaction.check_radius,
    "tau": _interaction.check_tau,
    "fusion-lower": _fusion_lower.check_lower,
    "fusion-upper": _fusion_upper.check_upper,
    "sup-error": _sup_error.check_sup_error,
    "atoms-lower-line": _atoms_line.check_atoms_line,
    "robust-lower": _robust_lower.check_robust,
}


def checker(kind: str) -> Checker:
    """The function that judges certificates of this kind."""
    if kind not in CHECKERS:
        raise CertificateError(f"Unknown certificate kind {kind!r}; known: {', '.join(CHECKERS)}.")
    return CHECKERS[kind]
