"""Numbers of a report: rank budgets of heads, shares of closed brackets, and correlations with intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

RESAMPLES = 2000
LEVEL = 0.95
AGAINST = ("lower", "upper", "svd_upper", "row_cover", "cross")

Cell = dict[str, Any]


@dataclass(frozen=True)
class Budget:
    """What is proved about one head at one temperature and tolerance, over all windows.

    ``upper`` suffices on every surveyed window, ``lower`` is needed on one of them: they bracket the
    largest r_eps. Both are ``None`` if a window has no numbers; ``problem`` then says why. ``cells`` are
    the cells that give the two ends.
    """

    model: str
    beta: float
    eps: float
    layer: int
    head: int
    windows: int
    lower: int | None = None
    upper: int | None = None
    problem: str | None = None
    ends: tuple[Cell, Cell] | None = None

    @property
    def gap(self) -> int | None:
        """Width of the bracket."""
        return None if self.lower is None or self.upper is None else self.upper - self.lower

    def __str__(self) -> str:
        if self.lower is None:
            return "no data"
        return str(self.upper) if self.gap == 0 else f"{self.upper} (>= {self.lower})"


@dataclass(frozen=True)
class Closing:
    """How far the brackets of one model, temperature and tolerance are closed.

    ``relative`` is the median of (upper - lower) / upper; ``svd_gap`` the median gap of the bracket that
    the singular values alone give. Medians are ``None`` where no cell has numbers.
    """

    model: str
    beta: float
    eps: float
    cells: int
    missing: int
    closed: int
    gap: float | None
    relative: float | None
    svd_gap: float | None
    upper: float | None

    @property
    def share(self) -> float | None:
        """Closed brackets among those with numbers."""
        found = self.cells - self.missing
        return self.closed / found if found else None


@dataclass(frozen=True)
class Correlation:
    """Rank correlation (Spearman) over heads of the SVD dimension with another rank.

    ``low, high``: a 95% bootstrap interval over heads. All three are ``None`` where one side is constant
    or not defined.
    """

    model: str
    beta: float
    eps: float
    against: str
    heads: int
    value: float | None
    low: float | None
    high: float | None


def groups(cells: Iterable[Cell], *names: str) -> list[tuple[dict[str, Any], list[Cell]]]:
    """Cells that agree in these columns, with the values they agree on, in the order of first appearance."""
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        found.setdefault(tuple(cell[name] for name in names), []).append(cell)
    return [(dict(zip(names, values, strict=True)), group) for values, group in found.items()]


def budgets(cells: Sequence[Cell]) -> list[Budget]:
    """One per model, temperature, head and tolerance."""
    found = []
    for key, group in groups(cells, "model", "beta", "eps", "layer", "head"):
        missing = [cell for cell in group if cell["upper"] is None]
        if missing:
            found.append(Budget(**key, windows=len(group), problem=missing[0]["problem"]))
            continue
        low, high = (max(group, key=lambda c, e=end: c[e]) for end in ("lower", "upper"))
        ends = {"lower": low["lower"], "upper": high["upper"], "ends": (low, high)}
        found.append(Budget(**key, windows=len(group), **ends))
    return found


def closings(cells: Sequence[Cell]) -> list[Closing]:
    """One per model, temperature and tolerance."""
    found = []
    for key, group in groups(cells, "model", "beta", "eps"):
        known = [cell for cell in group if cell["upper"] is not None]
        median = lambda values: float(np.median(values)) if len(values) else None
        gaps = [c["upper"] - c["lower"] for c in known]
        found.append(
            Closing(
                **key,
                cells=len(group),
                missing=len(group) - len(known),
                closed=sum(gap == 0 for gap in gaps),
                gap=median(gaps),
                relative=median([g / max(c["upper"], 1) for g, c in zip(gaps, known, strict=True)]),
                svd_gap=median([c["svd_upper"] - c["svd_lower"] for c in known]),
                upper=median([c["upper"] for c in known]),
            )
        )
    return found


def correlations(cells: Sequence[Cell], seed: int = 0) -> list[Correlation]:
    """The SVD dimension against both ends and every construction; heads with a missing number are out."""
    found = []
    for key, group in groups(cells, "model", "beta", "eps"):
        heads = [head for _, head in groups(group, "layer", "head")]
        widest = max(map(len, heads))
        complete = [
            head
            for head in heads
            if len(head) == widest and all(c["svd_dimension"] is not None for c in head)
        ]
        for name in AGAINST:
            x, y = (
                np.array([[c[column] for c in head] for head in complete], float)
                for column in ("svd_dimension", name)
            )
            value, low, high = _spearman(x, y, seed)
            about = {"against": name, "heads": len(complete)}
            found.append(Correlation(**key, **about, value=value, low=low, high=high))
    return found


def _spearman(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float | None, float | None, float | None]:
    """Correlation of (heads, windows) arrays, with the interval from resampling heads."""
    if len(x) < 3:
        return None, None, None
    value = _correlate(x.reshape(1, -1), y.reshape(1, -1))[0]
    if np.isnan(value):
        return None, None, None
    draw = np.random.default_rng(seed).integers(len(x), size=(RESAMPLES, len(x)))
    sampled = _correlate(x[draw].reshape(RESAMPLES, -1), y[draw].reshape(RESAMPLES, -1))
    if np.isnan(sampled).mean() > 1 - LEVEL:
        return float(value), None, None
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(sampled, [tail, 1 - tail])
    return float(value), float(low), float(high)


def _correlate(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman correlation of every row; NaN where one of the two is constant."""
    a, b = (rankdata(z, axis=1) for z in (x, y))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    size = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), size, out=np.full(len(x), np.nan), where=size > 0)
