"""The checker for one-dimensional interactions, where total positivity makes the profile exact.

Subject A; witness q (m,), k (N,), b (N,), so that A is (within a measured distance) the softmax of
q_i k_j + b_j; a step vector h (N,) and rows i_0, ..., i_K.

Theorem (Micchelli-Pinkus; Pinkus, "n-Widths in Approximation Theory", 1985). Sort by q and by k.
Let h_j be the average over cell [j-1, j] of a +-1 function on [0, N] with at most K sign changes
(knots), and let A h alternate in sign with magnitude >= delta on rows i_0 < ... < i_K. Then
a_{K+1} >= delta. Proof. If a step vector g with at most K knots had ||A g||_inf < delta, take the sign
of g with which both functions start alike. A (h - g) alternates on the K+1 rows; the kernel
exp(q_i k_j) is totally positive and does not increase sign changes, so h - g has K of them. All K
knots of h then lie between those places, so h keeps its starting sign up to the first of them, where
g already has the other: g has K+1 knots. Contradiction. Such g form an odd image of the sphere S^K,
so a B of rank at most K kills one of them (Borsuk-Ulam), and there ||(A - B) g||_inf >= delta while
||g||_inf <= 1.
"""

from collections.abc import Mapping
from typing import Any

import flint
import numpy as np

from ._balls import UNIT, Balls, FloatBalls, down, exact_in
from ._errors import InvalidWitness
from ._rank import claimed, lower_verdict, real
from ._subject import arb_precision, matrix_of, normalise_arb, softmax
from ._verdict import Verdict


def check_lower_1d(
    claim: Mapping[str, Any],
    witness: Mapping[str, np.ndarray],
    subject: Mapping[str, np.ndarray],
    arb: bool,
) -> Verdict:
    """See the module docstring."""
    rank, error = claimed(claim)
    with arb_precision():
        a = matrix_of(subject, arb)
        m, n = a.shape
        q, k, b = real(witness, "q", (m,)), real(witness, "k", (n,)), real(witness, "b", (n,))
        h, rows = real(witness, "h", (n,)), real(witness, "rows", (rank + 1,))
        if np.abs(h).max() > 1:
            raise InvalidWitness("h must have entries in [-1, 1].")
        columns = np.argsort(k, kind="stable")
        knots = count_knots(h[columns])
        if knots > rank:
            raise InvalidWitness(f"h has {knots} knots; rank {rank} allows at most {rank}.")
        index = rows.astype(int)
        if (index != rows).any() or (index < 0).any() or (index >= m).any():
            raise InvalidWitness("rows must be row indices of the subject.")
        if (np.diff(q[index]) <= 0).any():
            raise InvalidWitness("rows must be in strictly increasing order of q.")
        model = _model(q, k, b, arb)
        exact = exact_in(arb)
        lower, upper = (model @ exact(h[:, None])).entry_bounds()
        signs = np.where(np.arange(rank + 1) % 2 == 0, 1, -1)
        signs = signs * (1 if lower[index[0], 0] + upper[index[0], 0] >= 0 else -1)
        values = np.where(signs > 0, lower[index, 0], -upper[index, 0])
        delta = float(values.min())
        gap = (a - model).norm()
        bound = max(down(down(delta - gap) * (1 - 1e-15)), 0.0)
    return lower_verdict(rank, error, bound)


def count_knots(h: np.ndarray) -> int:
    """The fewest sign changes of a +-1 function whose cell averages are h (sorted by key).

    A cell with |h_j| = 1 is constant; any other average needs one change inside the cell if it ends
    on the other sign than it began, two if it returns. Dynamic programme over the sign at the end.
    """
    cost = {1: 0, -1: 0}  # cheapest number of changes so far, by the sign at the current boundary
    for value in h:
        enter = {s: min(cost[s], cost[-s] + 1) for s in (1, -1)}
        if abs(value) == 1:
            sign = int(value)
            cost = {sign: enter[sign], -sign: enter[sign] + 1}
        else:
            cost = {s: min(enter[-s] + 1, enter[s] + 2) for s in (1, -1)}
    return min(cost.values())


def _model(q: np.ndarray, k: np.ndarray, b: np.ndarray, arb: bool) -> Balls:
    if arb:
        keys = [flint.arb(float(x)) for x in k]
        weights = [flint.arb(float(x)) for x in b]
        rows = []
        for x in q:
            logits = [flint.arb(float(x)) * key + w for key, w in zip(keys, weights, strict=True)]
            top = max(float(z.mid()) for z in logits)
            rows.append([(z - top).exp() for z in logits])
        return normalise_arb(rows)
    product = q[:, None] * k[None, :]
    logits = product + b[None, :]
    radius = (2 * UNIT * (np.abs(product) + np.abs(logits))) * 1.01
    return softmax(FloatBalls(logits, radius))
