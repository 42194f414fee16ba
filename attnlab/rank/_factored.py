"""Attention by its queries and keys: the subject of streamed brackets, never held as a matrix."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ..certify import InvalidWitness
from ..certify._factored import Factored, read_factored
from ._attention import attention


@dataclass(frozen=True, eq=False)
class FactoredAttention:
    """Row softmax of ``beta * q k' + log_weights``, kept as its factors.

    Accepted wherever a matrix is: brackets and profiles of small ones form the matrix, those of large
    ones read it in blocks of rows and need memory proportional to (m + N) times the rank. Certificates
    then speak about the exact softmax of these numbers. ``np.asarray`` gives the matrix.

    Attributes:
        q: (m, d) queries. k: (N, d) keys. Kept in their own precision, float32 or float64.
        beta: inverse temperature (a transformer head has 1/sqrt(d)).
        log_weights: (N,) added to every row, e.g. the log multiplicity of a key; ``-inf`` removes it.
        mask: "causal" (query i sees keys j <= i + N - m), or (m, N) booleans, True where a query may
            look, kept as bits (packed ones, (m, ceil(N / 8)) of uint8, are taken as they are).

    Raises:
        ValueError: shapes that do not fit, NaN or infinite values, or a row with no key left.

    >>> FactoredAttention(np.zeros((1000, 2)), np.zeros((2000, 2)), beta=0.5)
    FactoredAttention(1000 x 2000, d=2, beta=0.5)
    """

    q: Any
    k: Any
    beta: Any = 1.0
    log_weights: Any = None
    mask: Any = None

    def __post_init__(self) -> None:
        q, k = _floats("q", self.q), _floats("k", self.k)
        if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in q.shape + k.shape:
            raise ValueError(
                f"q and k must be non-empty (m, d) and (N, d) with the same d, got {q.shape} and {k.shape}."
            )
        beta = _floats("beta", self.beta)
        if beta.shape != ():
            raise ValueError(f"beta must be one number, got shape {beta.shape}.")
        weights = np.zeros(len(k)) if self.log_weights is None else _floats("log_weights", self.log_weights)
        if weights.shape != (len(k),):
            raise ValueError(f"log_weights must have shape ({len(k)},), got {weights.shape}.")
        for name, value in (("q", q), ("k", k), ("beta", beta)):
            if not np.isfinite(value).all():
                raise ValueError(f"{name} has NaN or infinite entries: remove or replace them.")
        if np.isnan(weights).any() or (weights == np.inf).any():
            raise ValueError("log_weights have NaN or +inf entries: only -inf (removed) is allowed.")
        mask = _packed(self.mask, (len(q), len(k)))
        fields = {"q": q, "k": k, "beta": float(beta), "log_weights": weights, "mask": mask}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_rows(weights == -np.inf)
        try:
            self.exact.relative(np.asarray(q, np.float64))
        except InvalidWitness:
            raise ValueError(
                "beta * q k' + log_weights is too large for float64 logits: scale q, k or beta down."
            ) from None

    def __repr__(self) -> str:
        m, n = self.shape
        masked = "" if self.mask is None else ", causal" if isinstance(self.mask, str) else ", masked"
        return f"FactoredAttention({m} x {n}, d={self.q.shape[1]}, beta={self.beta:g}{masked})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.dense(), dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and keys."""
        return len(self.q), len(self.k)

    @property
    def subject(self) -> dict[str, np.ndarray]:
        """The named arrays that certificates about this attention carry, in float64."""
        arrays = {"q": self.q, "k": self.k, "beta": np.array(self.beta), "log_weights": self.log_weights}
        exact = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
        return exact if self.mask is None else exact | {"mask": np.array(self.mask)}

    @property
    def exact(self) -> Factored:
        """The same numbers as the checker reads them."""
        return read_factored(self.subject)

    def dense(self) -> np.ndarray:
        """The (m, N) matrix, as ``attention`` gives it where JAX's precision allows, else from NumPy."""
        wide = any(x.dtype == np.float64 for x in (self.q, self.k))
        if wide and jnp.result_type(float) != jnp.float64:
            return self.exact.rows(slice(None)).mid
        seen = self.exact.seen(slice(None))
        weights = self.log_weights.astype(np.result_type(self.q, self.k))
        return np.asarray(attention(self.q, self.k, self.beta, weights, seen), np.float64)

    def _check_rows(self, removed: np.ndarray) -> None:
        """Every query must see a key."""
        if self.mask is None:
            empty = np.full(1, removed.all())
        elif isinstance(self.mask, str):
            m, n = self.shape
            first = int(np.argmin(removed)) if not removed.all() else n
            empty = np.arange(m) + n - m < first
        else:
            kept = np.packbits(~removed)
            empty = ~(self.mask & kept).any(1)
        if empty.any():
            raise ValueError(f"row {int(empty.argmax())} has no key left: unmask one or give it weight.")


def _floats(name: str, value: Any) -> np.ndarray:
    """float32 or float64, on the host."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers ({error}).") from None
    if array.dtype.kind not in "fiub" and array.dtype != jnp.bfloat16:
        raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}.")
    keep = array.dtype in (np.float32, np.float64)
    small = array.dtype == np.float16 or array.dtype == jnp.bfloat16
    return np.array(array, array.dtype if keep else np.float32 if small else np.float64)


def _packed(mask: ArrayLike | str | None, shape: tuple[int, int]) -> np.ndarray | str | None:
    if mask is None or (isinstance(mask, str) and mask == "causal"):
        return mask
    allowed = np.asarray(mask)
    if allowed.dtype == np.uint8 and allowed.shape == (shape[0], -(-shape[1] // 8)):
        return np.array(allowed)
    if allowed.shape != shape or allowed.dtype != bool:
        raise ValueError(
            f'mask must be "causal" or boolean of shape {shape}, got {allowed.dtype} {allowed.shape}.'
        )
    return np.packbits(allowed, axis=1)


def logit_size(attention: FactoredAttention) -> float:
    """Largest centred logit there can be: what float32 has to resolve."""
    q, k, b = centred(attention)
    finite = b[b > -np.inf]
    reach = np.sqrt((q**2).sum(1).max() * (k**2).sum(1).max())
    return float(abs(attention.beta) * reach + np.ptp(finite) / 2) if math.isfinite(reach) else math.inf


def centred(attention: FactoredAttention) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k and log-weights of the same softmax, with queries and keys around the origin (float64)."""
    q, k = np.asarray(attention.q, np.float64), np.asarray(attention.k, np.float64)
    removed = attention.log_weights == -np.inf
    centre_q, centre_k = q.mean(0), k[~removed].mean(0)
    k = np.where(removed[:, None], 0.0, k - centre_k)
    b = attention.log_weights + attention.beta * (k @ centre_q)
    return q - centre_q, k, b - b.max()
