"""What a survey consists of, and what identifies each part of it.

A *matrix* is one learned head at one relative inverse temperature; it is searched once for all
tolerances. A *cell* is a matrix at one tolerance. Identifiers are hashes of content and settings, and
the random starts of a matrix are seeded by its identifier alone, so that neither the order of the work
nor where or when it is done changes a result.
"""

import hashlib
import importlib.metadata
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..learned import CapturedHead
from ..rank._effort import effort_named
from ..rank._profile import check_eps

PRECISIONS = ("float32", "float64")


@dataclass(frozen=True)
class Settings:
    """What every matrix of a survey is searched with.

    Attributes:
        eps: tolerances (largest row l1 error), each 0 < eps < 2; kept sorted.
        effort: "fast", "normal" or "thorough".
        precision: of the search, "float32" or "float64"; certificates are always made in float64.
        seed: changes every random start.
        certificates: whether the store keeps the certificates.
        version: of attnlab; another version may find other brackets.

    >>> Settings((0.2, 0.1)).eps
    (0.1, 0.2)
    """

    eps: tuple[float, ...]
    effort: str = "fast"
    precision: str = "float32"
    seed: int = 0
    certificates: bool = True
    version: str = importlib.metadata.version("attnlab")

    def __post_init__(self) -> None:
        if not len(self.eps):
            raise ValueError("eps is empty: give at least one tolerance.")
        object.__setattr__(self, "eps", tuple(sorted({check_eps(e) for e in self.eps})))
        effort_named(self.effort)
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be {' or '.join(PRECISIONS)}, got {self.precision!r}.")

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "eps": list(self.eps)}


@dataclass(frozen=True, eq=False)
class Matrix:
    """One head at one relative inverse temperature: what is searched at once.

    Attributes:
        model, revision, layer, head, window: where it comes from, as in ``CapturedHead``.
        beta: relative inverse temperature; the matrix is softmax(beta * logits).
        logits: (m, N) float32, -inf where masked.
        digest: SHA-256 of the logits.
        settings: of the survey.
    """

    model: str
    revision: str
    layer: int
    head: int
    window: int
    beta: float
    logits: np.ndarray
    digest: str
    settings: Settings

    @cached_property
    def search(self) -> str:
        """Hash of content and settings: equal for equal matrices, whatever they are called."""
        return search_id(self.digest, self.beta, self.settings)

    @cached_property
    def id(self) -> str:
        """Hash of ``search`` and of where the matrix comes from."""
        return matrix_id(self.search, self.model, self.revision, self.layer, self.head, self.window)

    @property
    def seed(self) -> int:
        """Of the random starts."""
        return int(self.search[:12], 16)

    def subject(self) -> np.ndarray:
        """(m, N) float64 logits that the certificates speak about."""
        return self.beta * self.logits.astype(np.float64)

    def __repr__(self) -> str:
        m, n = self.logits.shape
        where = f"{self.model} {self.layer}.{self.head}, window {self.window}, beta {self.beta:g}"
        return f"Matrix({where}, {m} x {n})"


def search_id(digest: str, beta: float, settings: Settings) -> str:
    """The identifier of a search: content, temperature and settings."""
    values = settings.as_dict()
    del values["certificates"]  # keeping them changes no result
    return _hash([digest, float(beta), values])


def matrix_id(search: str, model: str, revision: str, layer: int, head: int, window: int) -> str:
    """The identifier of a matrix: its search, and where it comes from."""
    return _hash([search, model, revision, int(layer), int(head), int(window)])


def cell_id(matrix: str, eps: float) -> str:
    """The identifier of a cell.

    >>> cell_id("0" * 24, 0.1)
    '435ef994b2c6773e7a67795e'
    """
    return _hash([matrix, float(eps)])


def plan(heads: Iterable[CapturedHead], betas: Sequence[float], settings: Settings) -> list[Matrix]:
    """All matrices, those of one shape together; a matrix given twice is taken once.

    Raises:
        ValueError: no head, no temperature, or one that is not a positive number.
    """
    wanted = sorted({float(b) for b in betas})
    if not wanted:
        raise ValueError("betas is empty: give at least one relative inverse temperature, such as 1.")
    for b in wanted:
        if not (math.isfinite(b) and b > 0):
            raise ValueError(f"betas must be positive numbers, got {b:g}.")
    found: dict[str, Matrix] = {}
    for h in heads:
        digest, logits = h.digest, np.asarray(h.logits, np.float32)
        for b in wanted:
            matrix = Matrix(h.model, h.revision, h.layer, h.head, h.window, b, logits, digest, settings)
            found.setdefault(matrix.id, matrix)
    if not found:
        raise ValueError("there is no head to survey: check the choice of layers and heads.")
    return sorted(found.values(), key=lambda matrix: matrix.logits.shape)


def buckets(matrices: Iterable[Matrix]) -> dict[tuple[int, int], list[Matrix]]:
    """Matrices by shape: every shape is compiled once."""
    found: dict[tuple[int, int], list[Matrix]] = {}
    for matrix in matrices:
        m, n = matrix.logits.shape
        found.setdefault((m, n), []).append(matrix)
    return found


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]
