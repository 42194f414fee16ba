"""Numbers that stand beside a bracket: what singular values say, and explicit constructions, certified."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ..certify import Certificate
from ..interaction import intrinsic, residual
from ..interaction import row_cover as cover_within
from ..rank import cross

LARGEST = 128  # the SVD dimension of larger matrices costs more than their search
Factors = tuple[np.ndarray, np.ndarray]


def baselines(logits: np.ndarray, eps: Sequence[float]) -> list[dict[str, int | None]]:
    """Per tolerance: ``svd_lower``, ``svd_upper``, ``row_cover``, ``cross``, ``svd_dimension``.

    ``svd_lower`` is the rank that the tail of the singular values forces (float64, not certified). The
    next three are ranks of explicit matrices within eps, each verified; that of the truncated SVD and of
    the cross approximation is found by bisection, so a smaller one may do as well. The last is the least
    r with tau(SVD_r(C)) <= eps, C the intrinsic interaction; ``None`` where an attention weight is zero
    or the matrix has more than 128 rows or columns.

    >>> baselines(np.zeros((3, 3)), [0.5])
    [{'svd_lower': 1, 'svd_upper': 1, 'row_cover': 1, 'cross': 1, 'svd_dimension': 0}]
    """
    raw = np.exp(logits - logits.max(1, keepdims=True))
    a = raw / raw.sum(1, keepdims=True)
    subject = {"logits": logits}
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    truncated = functools.cache(lambda rank: _measured(a, (u[:, :rank] * s[:rank], vt[:rank])))
    crossed = functools.cache(lambda rank: _measured(a, cross(a, rank)))
    tails = np.sqrt(np.append(np.cumsum((s**2)[::-1])[::-1], 0.0) / len(a))
    dimensions = _dimensions(a, eps)
    found: list[dict[str, int | None]] = []
    for e, dimension in zip(eps, dimensions, strict=True):
        ranks = {
            "svd_upper": _verified(subject, _least(truncated, min(a.shape), e), e),
            "row_cover": _verified(subject, cover_within(a, e * (1 - 1e-12)), e),
            "cross": _verified(subject, _least(crossed, min(a.shape), e), e),
        }
        found.append({"svd_lower": int(np.argmax(tails <= e)), **ranks, "svd_dimension": dimension})
    return found


def _measured(a: np.ndarray, factors: Factors) -> tuple[float, Factors]:
    return float(np.abs(a - factors[0] @ factors[1]).sum(1).max()), factors


def _least(make: Callable[[int], tuple[float, Factors]], high: int, eps: float) -> Factors:
    """Factors within eps, by bisection over the rank from ``high``, the full one, down."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if make(middle)[0] <= eps * (1 - 1e-12):
            high = middle
        else:
            low = middle
    return make(high)[1]


def _verified(subject: dict[str, np.ndarray], factors: Factors, eps: float) -> int:
    """The rank of factors that are proved to be within eps; the full one needs no factors."""
    left, right = factors
    claim = {"rank": len(right), "error": float(eps)}
    holds = Certificate("rank-upper", claim, {"U": left, "W": right}, subject).verify().holds
    return len(right) if holds else min(next(iter(subject.values())).shape)


def _dimensions(a: np.ndarray, eps: Sequence[float]) -> list[int | None]:
    """``svd_dimension`` for every tolerance with one pass over the ranks."""
    if (a <= 0).any() or max(a.shape) > LARGEST:
        return [None] * len(eps)
    c = intrinsic(a)
    u, s, vt = np.linalg.svd(c, full_matrices=False)
    floor = 1e-12 * (1 + s[0])  # what rounding leaves of an exact fit
    found: list[int | None] = [len(s)] * len(eps)
    waiting = set(range(len(eps)))
    for rank in range(len(s)):
        tau = 2 * math.tanh(residual(c - (u[:, :rank] * s[:rank]) @ vt[:rank]) / 2)
        for i in [i for i in waiting if tau <= eps[i] + floor]:
            found[i] = rank
            waiting.remove(i)
        if not waiting:
            break
    return found
