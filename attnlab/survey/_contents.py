"""What a report says, in numbers and rows of text; its two forms only lay it out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._store import read_cells, read_settings
from ._summary import AGAINST, Budget, Cell, Closing, Correlation, budgets, closings, correlations

NAMES = {
    "lower": "certified lower end",
    "upper": "certified upper end",
    "svd_upper": "truncated SVD",
    "row_cover": "row cover",
    "cross": "cross approximation",
}


@dataclass(frozen=True)
class Contents:
    """Everything a report says, for both of its forms."""

    title: str
    facts: list[tuple[str, str]]
    cells: list[Cell]
    budgets: list[Budget]
    closings: list[Closing]
    correlations: list[Correlation]

    @property
    def models(self) -> list[str]:
        """Names, sorted."""
        return sorted({cell["model"] for cell in self.cells})


def contents(root: Path, proofs: Mapping[str, str] | None) -> Contents:
    """Read a store; raises ValueError if it has no cells."""
    settings = read_settings(root)
    cells = read_cells(root).to_pylist()
    if not cells:
        raise ValueError(f"{root} has no cells yet: run the survey.")
    known = [cell for cell in cells if cell["upper"] is not None]
    closed = sum(cell["closed"] for cell in known)
    share = f"{closed:,} of {len(known):,} ({100 * closed / max(len(known), 1):.1f}%)"
    gaps = sorted(cell["upper"] - cell["lower"] for cell in known)
    useful = sum(cell["lower"] >= 1 for cell in known)
    matrices = {cell["matrix"]: cell for cell in cells}.values()
    facts = [
        (
            "cells",
            f"{len(cells):,}: {len(matrices):,} matrices at eps {', '.join(map(number, settings.eps))}",
        ),
        ("without numbers", f"{len(cells) - len(known):,}"),
        ("brackets closed", share),
        ("median gap", f"{gaps[len(gaps) // 2]}" if gaps else "no data"),
        ("lower end at least 1", f"{useful:,} of {len(cells):,} ({100 * useful / len(cells):.1f}%)"),
        ("proved from the stored certificates", _proved(proofs)),
        ("search", f"effort {settings.effort}, {settings.precision}, seed {settings.seed}"),
        ("solver time", f"{sum(cell['seconds'] for cell in matrices):,.0f} s, summed over matrices"),
        ("attnlab", settings.version),
    ]
    title = f"Certified rank of {', '.join(sorted({cell['model'] for cell in cells}))}"
    return Contents(title, facts, cells, budgets(cells), closings(cells), correlations(cells))


def _proved(proofs: Mapping[str, str] | None) -> str:
    if proofs is None:
        return "not read back in this run"
    good = sum(not fault for fault in proofs.values())
    faults = Counter(fault for fault in proofs.values() if fault)
    text = f"{good:,} of {len(proofs):,} cells"
    return text + "".join(f"; {count:,}: {fault}" for fault, count in faults.most_common(3))


CLOSING_HEADER = (
    "model", "beta", "eps", "cells", "no data", "closed", "share", "median gap", "median gap / upper",
    "median upper", "median gap of the SVD bracket",
)  # fmt: skip
CORRELATION_HEADER = ("model", "beta", "eps", "heads", *(NAMES[name] for name in AGAINST))


def closing_row(c: Closing) -> list[str]:
    """Text of one row of the first table."""
    optional = [number(x) for x in (c.share, c.gap, c.relative, c.upper, c.svd_gap)]
    return [c.model, f"{c.beta:g}", f"{c.eps:g}", str(c.cells), str(c.missing), str(c.closed), *optional]


def correlation_groups(found: Sequence[Correlation]) -> list[list[Correlation]]:
    """Those of one model, temperature and tolerance together."""
    together: dict[tuple[str, float, float], list[Correlation]] = {}
    for c in found:
        together.setdefault((c.model, c.beta, c.eps), []).append(c)
    return list(together.values())


def correlation_row(group: Sequence[Correlation]) -> list[str]:
    """Text of one row of the last table."""
    first = group[0]
    values = [
        "-" if c.value is None
        else f"{c.value:.2f} [{'-' if c.low is None else f'{c.low:.2f}, {c.high:.2f}'}]"
        for c in group
    ]  # fmt: skip
    return [first.model, f"{first.beta:g}", f"{first.eps:g}", str(first.heads), *values]


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
