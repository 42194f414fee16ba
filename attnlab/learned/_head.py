"""One head on one window of input: what a survey measures."""

import hashlib
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class CapturedHead:
    """One attention head on one input. Attention is the row softmax of ``logits``.

    Attributes:
        model: hub name, name of the folder, or of the file.
        revision: SHA-256 of the weights (of the file, for ``load_file``).
        layer, head: from 0.
        window: counts the windows of all texts (or the images), from 0.
        logits: shape (m, N), float32, ``-inf`` where masked; the model's own scale is included.
        q, k: shapes (m, d), (N, d), float32, after rotary embedding, keys repeated where query heads
            share them: ``logits = scale * q k'`` up to the mask. None if a file has none.
        scale: that factor; ``nan`` without q and k.
        tokens: the N tokens, or empty.
    """

    model: str
    revision: str
    layer: int
    head: int
    window: int
    logits: np.ndarray
    q: np.ndarray | None = None
    k: np.ndarray | None = None
    scale: float = float("nan")
    tokens: tuple[str, ...] = field(default=())

    @property
    def digest(self) -> str:
        """SHA-256 of the shape and the float32 bytes of the logits: the identity of the subject."""
        data = np.ascontiguousarray(self.logits, "<f4")
        return hashlib.sha256(repr(data.shape).encode() + data.tobytes()).hexdigest()

    def attention(self, beta: float = 1.0) -> np.ndarray:
        """softmax(beta * logits), shape (m, N), float64; ``beta`` is relative to the model's own.

        >>> head = CapturedHead("toy", "", 0, 0, 0, np.array([[0.0, -np.inf]], np.float32))
        >>> head.attention(0.5).tolist()
        [[1.0, 0.0]]
        """
        if not (np.isfinite(beta) and beta > 0):
            raise ValueError(f"beta must be a positive number, got {beta}: 1 is the model's own temperature.")
        logits = beta * self.logits.astype(np.float64)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def __repr__(self) -> str:
        m, n = self.logits.shape
        return f"CapturedHead({self.model} {self.layer}.{self.head}, window {self.window}, {m} x {n})"
