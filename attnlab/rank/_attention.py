"""Attention matrices from queries and keys."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from .._precision import as_jax, concrete


def attention(
    q: ArrayLike,
    k: ArrayLike,
    beta: ArrayLike = 1.0,
    log_weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> jax.Array:
    """Row softmax of ``beta * q k' + log_weights``; a pure function, for jit, vmap and grad.

    Arguments:
        q: (m, d) queries.
        k: (N, d) keys.
        beta: inverse temperature (a transformer head has 1/sqrt(d)).
        log_weights: (N,) added to every row, e.g. the log multiplicity of a key; ``-inf`` removes it.
        mask: (m, N) booleans, True where a query may look; others get exactly zero.

    Returns:
        (m, N) attention; every row sums to 1.

    Raises:
        ValueError: shapes that do not fit, NaN or infinite values, or a row with no key left.
        RuntimeError: NumPy float64 input while JAX's float64 is off.

    >>> attention([[0.0], [1.0]], [[0.0], [0.0]])
    Array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float64)
    """
    q, k = as_jax("q", q), as_jax("k", k)
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in q.shape + k.shape:
        raise ValueError(
            f"q and k must be non-empty (m, d) and (N, d) with the same d, got {q.shape} and {k.shape}."
        )
    for name, value in (("q", q), ("k", k)):
        known = concrete(value)
        if known is not None and not jnp.isfinite(known).all():
            raise ValueError(f"{name} has NaN or infinite entries: remove or replace them.")
    dtype = jnp.result_type(q, k)
    logits = jnp.asarray(beta, dtype) * jnp.matmul(
        q.astype(dtype), k.astype(dtype).T, precision=jax.lax.Precision.HIGHEST
    )
    if log_weights is not None:
        weights = as_jax("log_weights", log_weights)
        if weights.shape != (k.shape[0],):
            raise ValueError(f"log_weights must have shape ({k.shape[0]},), got {weights.shape}.")
        logits = logits + weights.astype(dtype)[None, :]
    if mask is not None:
        allowed = jnp.asarray(mask)
        if allowed.shape != logits.shape or allowed.dtype != bool:
            raise ValueError(
                f"mask must be boolean of shape {logits.shape}, got {allowed.dtype} {allowed.shape}."
            )
        logits = jnp.where(allowed, logits, -jnp.inf)
    known = concrete(logits)
    if known is not None:
        empty = (known == -jnp.inf).all(1)
        if jnp.isnan(known).any() or (known == jnp.inf).any():
            wider = ", or pass float64" if dtype == jnp.float32 else ""
            raise ValueError(
                "beta * q k' + log_weights has NaN or +inf entries (q and k too large for "
                f"{dtype} logits, or bad beta): rescale q, k or beta{wider}."
            )
        if empty.any():
            raise ValueError(f"row {int(empty.argmax())} has no key left: unmask one or give it weight.")
    return jax.nn.softmax(logits, axis=1)
