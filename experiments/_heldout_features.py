"""Features of an attention head for the held-out study; names as in heldout_protocol.toml."""

from collections.abc import Sequence

import numpy as np

from attnlab.interaction import double_centre, factor_radius, full_support_block, residual
from attnlab.learned import CapturedHead

RADIUS_RANKS = (1, 2, 4, 8)
BOUND_RANKS = (1, 2, 4, 8, 16, 32)
RESIDUAL_RANKS = (1, 2, 4, 8, 16)
TAILS = (1, 4, 16)


def latent(rank: float | np.ndarray, n: int) -> np.ndarray:
    """g(r) = log(r / (n - r)), r clipped to [1/2, n - 1/2]."""
    clipped = np.clip(rank, 0.5, n - 0.5)
    return np.log(clipped / (n - clipped))


def latent_interval(lower: int, upper: int, n: int) -> tuple[float, float]:
    """The ends of the latent response of a bracket.

    >>> latent_interval(1, 64, 64)
    (-inf, inf)
    """
    low = -np.inf if lower <= 1 else float(latent(lower - 0.5, n))
    high = np.inf if upper >= n else float(latent(upper + 0.5, n))
    return low, high


def rank_of(value: float | np.ndarray, n: int | np.ndarray) -> np.ndarray:
    """The inverse of ``latent``."""
    return n / (1 + np.exp(-np.asarray(value)))


def subject_of(head: CapturedHead) -> CapturedHead:
    """The head itself, or the largest full-support block of a masked one, under the name ``... (block)``."""
    if np.isfinite(head.logits).all():
        return head
    block = full_support_block(head.attention())
    rows, columns = slice(block.first_query, None), slice(block.last_key + 1)
    return CapturedHead(
        f"{head.model} (block)",
        head.revision,
        head.layer,
        head.head,
        head.window,
        head.logits[rows, columns],
        None if head.q is None else head.q[rows],
        None if head.k is None else head.k[columns],
        head.scale,
        head.tokens[columns],
    )


def head_features(head: CapturedHead, betas: Sequence[float], eps: Sequence[float]) -> list[dict[str, float]]:
    """One dictionary per (beta, eps), with ``beta`` and ``eps``. The head has q and k and no mask."""
    if head.q is None or head.k is None or not np.isfinite(head.logits).all():
        raise ValueError(f"{head} has no queries and keys, or a mask: features need both.")
    interaction = double_centre(head.logits)
    u, s, vt = np.linalg.svd(interaction, full_matrices=False)
    rank = int((s > 1e-6 * s[0]).sum())  # float32 logits
    parts = [(u[:, :r] * np.sqrt(s[:r]), vt[:r].T * np.sqrt(s[:r])) for r in range(len(s) + 1)]
    # Kappa and the residual scale with beta, so every temperature has its own from the same numbers.
    kappas = {r: factor_radius(*parts[r], tol=1e-2).upper for r in {*BOUND_RANKS, rank} if r <= rank}
    kappas |= {r: kappas[rank] for r in BOUND_RANKS if r > rank}
    residuals = np.zeros(max(len(parts), 1 + max(BOUND_RANKS)))
    residuals[:rank] = [residual(interaction - x @ y.T) for x, y in parts[:rank]]
    native = _native(head)
    rows = []
    for beta in betas:
        a = head.attention(beta)
        row = {"beta": beta, "log beta": np.log(beta), **_matrix_features(a), **native}
        row |= {name: native[name] + np.log(beta) for name in SCALED}
        row |= {f"log kappa {r}": np.log(beta * kappas[r] + TINY) for r in RADIUS_RANKS}
        row["log kappa all"] = np.log(beta * kappas[rank] + TINY)
        row |= {f"log residual {r}": np.log(beta * residuals[r] + TINY) for r in RESIDUAL_RANKS}
        bounds = {r: beta * kappas[r] for r in (*BOUND_RANKS, rank)}
        for e in eps:
            cell = _cell_features(a, e, tau_of(beta * residuals), bounds)
            rows.append({name: float(value) for name, value in (row | cell).items()})
    return rows


TINY = 1e-12
SCALED = ("log query norm", "log mean query norm", "log native radius")


def _native(head: CapturedHead) -> dict[str, float]:
    assert head.q is not None
    assert head.k is not None
    q, k = head.scale * head.q.astype(np.float64), head.k.astype(np.float64)
    norms = [np.linalg.norm(x, axis=1) for x in (q, k)]
    centred = [x - x.mean(0) for x in (q, k)]
    radii = [np.linalg.norm(x, axis=1).max() for x in centred]
    spectra = [np.linalg.svd(x, compute_uv=False) ** 2 for x in centred]
    dimensions = [x.sum() ** 2 / (x**2).sum() for x in spectra]
    return {
        "log width": np.log(q.shape[1]),
        "log query norm": np.log(norms[0].max()),
        "log key norm": np.log(norms[1].max()),
        "log mean query norm": np.log(norms[0].mean()),
        "log mean key norm": np.log(norms[1].mean()),
        "log native radius": np.log(radii[0] * radii[1]),
        "log query dimension": np.log(dimensions[0]),
        "log key dimension": np.log(dimensions[1]),
    }


def _entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log(np.maximum(p, 1e-300))).sum(-1)


def _tails(a: np.ndarray) -> np.ndarray:
    """(sum over j > k of s_j^2 / m)^(1/2) for k = 0 .. n."""
    s = np.linalg.svd(a, compute_uv=False)
    return np.sqrt(np.append(np.cumsum((s**2)[::-1])[::-1], 0.0) / len(a))


def _matrix_features(a: np.ndarray) -> dict[str, float]:
    entropies, tails = _entropy(a), _tails(a)
    stable = tails[0] ** 2 / (tails[0] ** 2 - tails[1] ** 2)
    return {
        "log size": np.log(min(a.shape)),
        "mean entropy": entropies.mean(),
        "least entropy": entropies.min(),
        "greatest entropy": entropies.max(),
        "entropy of the mean row": float(_entropy(a.mean(0))),
        "log stable rank": np.log(stable),
        **{f"log tail {k}": np.log(tails[min(k, len(tails) - 2)] + 1e-12) for k in TAILS},
    }


def tau_of(residuals: np.ndarray) -> np.ndarray:
    """tau = 2 tanh(q / 2), elementwise."""
    return 2 * np.tanh(residuals / 2)


def _cell_features(a: np.ndarray, eps: float, taus: np.ndarray, kappas: dict[int, float]) -> dict[str, float]:
    n = min(a.shape)
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    errors = [np.abs(a - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max() for k in range(n)] + [0.0]
    lower = float(latent(int(np.argmax(_tails(a) <= eps)), n))
    upper = float(latent(int(np.argmax(np.array(errors) <= eps)), n))
    terms = [r / 2 * np.log1p(k / (eps - taus[r]) ** 2) for r, k in kappas.items() if taus[r] < eps]
    return {
        "eps": eps,
        "log eps": np.log(eps),
        "svd lower": lower,
        "svd upper": upper,
        "svd lower squared": lower**2,
        "svd upper squared": upper**2,
        "svd dimension": float(latent(int(np.argmax(taus <= eps)), n)),
        "log bound": np.log(min(terms)),
    }
