"""The float64 end of a lower search: a short descent on the host from what float32 lanes found.

A search in float32 cannot see the last per cent of a witness whose numbers span many orders (ranks near
the full one). The best witness of a rank is therefore moved a little further here, one lane at a time,
with true inverses. Parameters are those of ``_lower.Pencil``; gradients are written out, so nothing is
compiled.
"""

import numpy as np

from ._lower import complete, rms

STEPS, RATE = 400, 0.02  # the rate is relative to the size of the parameters
WARM_UP = 10  # steps over which the rate grows to its full size


def refine_lower(matrix: np.ndarray, right: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A witness (R, C) at least as good as the given one.

    Adam on the smoothed log max_j ||C_j||_1, C = Z + (R - Z A R)(L A R)^{-1} L, from Z = C and
    L = (A R)^+, which is the given witness; the best iterate is kept.

    Arguments:
        matrix: (m, N) float64.
        right, weights: the witness, R (N, s) with orthonormal columns and C (N, m), C A R = R.

    >>> a, right = np.eye(3), np.linalg.qr(np.arange(6.0).reshape(3, 2) ** 2)[0]
    >>> crude = right @ np.linalg.pinv(a @ right)
    >>> right, weights = refine_lower(a, right, crude)
    >>> bool(np.abs(weights).sum(1).max() < np.abs(crude).sum(1).max())
    True
    """
    params = [np.linalg.pinv(matrix @ right), right, weights]
    scales = [rms(params[0]), rms(right), rms(weights)]
    first = [np.zeros_like(p) for p in params]
    second = [np.zeros_like(p) for p in params]
    best, kept = np.inf, params
    for i in range(STEPS):
        progress = i / STEPS
        exact, gradients = value_and_gradient(
            matrix, *params, width=10 ** (-1 - 2.5 * progress), heat=10 ** (-1 - 2 * progress)
        )
        if not np.isfinite(exact):
            break
        if exact < best:
            best, kept = exact, params
        step = RATE * (1 - progress) * min(1.0, (i + 1) / WARM_UP)
        moved = []
        for j, (p, g) in enumerate(zip(params, gradients, strict=True)):
            first[j] = 0.9 * first[j] + 0.1 * g
            second[j] = 0.99 * second[j] + 0.01 * g * g
            mean, spread = first[j] / (1 - 0.9 ** (i + 1)), second[j] / (1 - 0.99 ** (i + 1))
            moved.append(p - step * scales[j] * mean / (np.sqrt(spread) + np.finfo(float).tiny ** 0.5))
        params = moved
    refined = complete(matrix, *kept)
    return refined if np.abs(refined[1]).sum(1).max() < np.abs(weights).sum(1).max() else (right, weights)


def value_and_gradient(
    matrix: np.ndarray, left: np.ndarray, right: np.ndarray, free: np.ndarray, width: float, heat: float
) -> tuple[float, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """max_j ||C_j||_1, and the gradient of its smoothed logarithm in (L, R, Z).

    ``width`` and ``heat`` as in ``_descend.Smoothing``. The value is inf where L A R is singular.
    """
    image = matrix @ right
    pencil = left @ image
    try:
        dual = np.linalg.solve(pencil, left)
        back = np.linalg.inv(pencil).T
    except np.linalg.LinAlgError:
        return np.inf, (left, right, free)
    rest = right - free @ image
    c = free + rest @ dual
    largest = np.abs(c).sum(1).max()
    rounded = np.hypot(c, width * largest / c.shape[1])
    sums = rounded.sum(1)
    share = (sums / sums.max()) ** (1 / heat)
    g = (share / share.sum() / sums)[:, None] * c / rounded
    # Back through C = Z + E D with E = R - Z I, D = P^{-1} L, P = L I, I = A R.
    g_rest = g @ dual.T
    g_left = back @ (rest.T @ g)
    g_pencil = -g_left @ dual.T
    g_image = left.T @ g_pencil - free.T @ g_rest
    return float(largest), (
        g_left + g_pencil @ image.T,
        g_rest + matrix.T @ g_image,
        g - g_rest @ image.T,
    )
