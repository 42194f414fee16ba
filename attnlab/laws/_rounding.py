"""How far the float64 matrices used here can be from the exact softmax of the points.

The points, weights and beta stored in a ``PointAttention`` are taken as exact. Write u = 2^-53 and
gamma_n = n u / (1 - n u). Logits are computed as beta (q . k) + b, then shifted by a row constant,
which the softmax does not see.

*Logits.* A dot product of length d, a product by beta, a sum and a difference are off by at most
gamma_{d+1} beta |q||k| + u (beta |q||k| + |b|) + 2 u max_j (beta |q||k_j| + |b_j|), in all at most
gamma_{d+6} times h_i, the largest of beta |q_i||k_j| + |b_j| over j. Logits that are off by at most
e have log-ratios that oscillate by at most 2 e, so the two softmax rows differ by at most
2 tanh(e / 2) <= e in l1.

*Softmax.* exp is off by a relative eta, the sum by gamma_N and the quotient by u, so an entry is off
by a relative 2 eta + gamma_{N+4} up to second order, and a row, which sums to 1, by the same in l1.
eta is the accuracy of NumPy's exp assumed by ``attnlab.certify``. The largest logit is exactly 0, so the
sum is at least 1 and underflow adds less than N 2^-1021.

*Clusters.* Adding up at most N non-negative columns adds gamma_N. The checker divides each row by
its sum, which can at most double the distance.
"""

import numpy as np

from ..certify._balls import TINY, UNIT, gamma
from ..certify._subject import EXP_ULPS

SECOND_ORDER = 1.01  # every first-order term above is below 1e-3


def logit_error(q: np.ndarray, k: np.ndarray, beta: float, log_weights: np.ndarray) -> float:
    """A bound on the l1 distance, row by row, of the softmax of the computed and the exact logits."""
    d = q.shape[1]
    with np.errstate(over="ignore"):  # an infinite bound is the right answer then
        lengths = [float(np.sqrt((p**2).sum(1).max(initial=0.0))) for p in (q, k)]
    largest = beta * lengths[0] * lengths[1] + float(np.abs(log_weights).max(initial=0.0))
    return gamma(d + 6) * largest * SECOND_ORDER + TINY


def aggregate_error(q: np.ndarray, k: np.ndarray, beta: float, log_weights: np.ndarray) -> float:
    """A bound on the l1 distance, row by row, of a normalised computed ``aggregate`` and the exact one."""
    n = len(k)
    softmax = 2 * (2 * EXP_ULPS * UNIT) + gamma(n + 4)
    once = logit_error(q, k, beta, log_weights) + (softmax + gamma(n)) * SECOND_ORDER
    return 2 * once + 4 * UNIT + n * TINY  # 4 u: the comparison with eps that follows
