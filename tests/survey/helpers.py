"""Heads that are cheap to survey, and tables without the columns that hold timings."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from attnlab.learned import CapturedHead
from attnlab.survey import TIMING, read_cells


def line_heads(count: int = 6, size: int = 8, seed: int = 0) -> list[CapturedHead]:
    """Logits q_i k_j, exact in float32: solved on the host, with no search and no compilation."""
    rng = np.random.default_rng(seed)
    heads = []
    for i in range(count):
        q, k = rng.integers(-24, 25, size=(2, size)) / 8
        heads.append(CapturedHead("lines", "0" * 64, i // 2, i % 2, 0, np.outer(q, k).astype(np.float32)))
    return heads


def dense_heads(count: int = 2, size: int = 6, seed: int = 0) -> list[CapturedHead]:
    """Small heads that need the search."""
    rng = np.random.default_rng(seed)
    logits = [2 * rng.normal(size=(size, 3)) @ rng.normal(size=(3, size)) for _ in range(count)]
    return [CapturedHead("dense", "0" * 64, 0, i, 0, z.astype(np.float32)) for i, z in enumerate(logits)]


def cells_of(store: Path | str) -> pa.Table:
    """All cells, but for the timings."""
    return read_cells(Path(store)).drop_columns(list(TIMING))
