"""Kind ``atoms-lower-line``: how many atoms any head needs to stay within eps of a sum of heads on a box.

Subject: the ``target_`` arrays and ``radius`` of kind ``sup-error`` (``radius`` may be infinite here).
Witness: ``origins`` (L, d) with L = 1 or 2, ``direction`` (d,), ``times`` (L, K) increasing, ``levels`` (L,),
``coordinate``. Claim: ``{"atoms": m, "eps": x}`` with m <= K for one line, m <= K + 1 for two.

Proof. On a line q = origin + t direction a head with n atoms and values v_i (one coordinate) minus a
constant c is sum_i w_i (v_i - c) e^{s_i t} over a positive sum, s_i = <k_i, direction>. In the order of
the s_i, such a sum has at most as many sign changes in t as its coefficients have (Descartes), equal s_i
merged. If W - c is beyond +eps and -eps in turn at K points of the line inside the box, then F - c has
K - 1 sign changes for every F within eps of W, so n >= K.

Two lines: if n = K, the first line forces K distinct s_i, and the values alternate around c_1 in their
order, starting with the sign seen first. On a parallel line the order is the same. If that line shows
the opposite signs around c_2, some value is above c_1 and below c_2 and the next one is below c_1 and
above c_2: impossible (K >= 2). So n >= K + 1.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._balls import UNIT
from ._errors import InvalidWitness
from ._fusion import claimed_atoms
from ._head_series import HeadSeries
from ._sup_error import Atoms, claimed_number, decode_target, finite_array
from ._verdict import Verdict, failed

Named = Mapping[str, np.ndarray]


def check_atoms_line(claim: Mapping[str, Any], witness: Named, subject: Named, arb: bool) -> Verdict:
    """Float64 enclosures of the target at the points; ``arb`` changes nothing."""
    claimed, eps = claimed_atoms(claim), claimed_number(claim, "eps")
    radius = np.asarray(subject["radius"], np.float64)
    if radius.ndim != 1 or not len(radius) or not (radius > 0).all():
        raise InvalidWitness("radius must be positive numbers, one for each coordinate.")
    d = len(radius)
    target = decode_target(subject, d)
    origins, times = finite_array(witness, "origins", (None, d)), finite_array(witness, "times", (None, None))
    lines, points = times.shape
    if lines not in (1, 2) or points < lines or len(origins) != lines:
        raise InvalidWitness("Give one line, or two lines with at least two points each.")
    if not (np.diff(times) > 0).all():
        raise InvalidWitness("times must increase along each line.")
    direction, levels = finite_array(witness, "direction", (d,)), finite_array(witness, "levels", (lines,))
    coordinate = int(witness["coordinate"])
    if not 0 <= coordinate < target[0].values.shape[1]:
        raise InvalidWitness("coordinate is not one of the values.")
    margins = np.empty((lines, 2))
    for i in range(lines):
        low, high = _enclosed(target, coordinate, origins[i], direction, times[i], radius)
        for first in (0, 1):
            above = (np.arange(points) + first) % 2 == 0
            margins[i, first] = np.where(above, low - levels[i], levels[i] - high).min()
    margins -= 4 * UNIT * (np.abs(margins) + np.abs(levels)[:, None])
    swing = margins[0].max()
    if lines == 2:
        swing = max(min(margins[0, 0], margins[1, 1]), min(margins[0, 1], margins[1, 0]))
    proved = points + (lines == 2)
    where = "a line" if lines == 1 else "two parallel lines"
    text = (
        f"Every single head within {eps:.6g} of the sum of {len(target)} heads on the box has at least "
        f"{proved} atoms: along {where} the sum alternates around a level at {points} points by at least "
        f"{swing:.6g}"
    )
    if not swing > eps:
        return failed(f"The sum does not alternate by more than {eps:.6g}, only {swing:.6g}.", float(proved))
    if claimed > proved:
        return failed(f"{text}. The claim of {claimed} is larger.", float(proved), proved - claimed)
    return Verdict(True, text + ".", float(proved), float(swing - eps))


def _enclosed(
    target: list[Atoms],
    coordinate: int,
    origin: np.ndarray,
    direction: np.ndarray,
    times: np.ndarray,
    radius: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the sum at the exact points of the line, which must lie in the box."""
    travel = times[:, None] * direction
    points = origin + travel
    slack = 8 * UNIT * (np.abs(origin) + np.abs(travel)) + 1e-290
    if (np.abs(points) + slack > radius).any():
        raise InvalidWitness("A point of a line is outside the box.")
    low, high = np.zeros(len(times)), np.zeros(len(times))
    for head in target:
        ranges = HeadSeries(head.keys, head.values[:, coordinate], head.logs, 1).ranges(points, slack)
        low, high = low + ranges.low, high + ranges.high
    size = sum(float(np.abs(h.values).max()) for h in target)
    pad = 4 * UNIT * len(target) * size
    return low - pad, high + pad
