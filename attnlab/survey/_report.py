"""``report.md``, ``report.html`` and figures of a store: what a person looks at."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._contents import (
    CLOSING_HEADER,
    CORRELATION_HEADER,
    Contents,
    closing_row,
    contents,
    correlation_groups,
    correlation_row,
)
from ._figures import closing_bars, dimension_scatter, heat_maps
from ._page import page
from ._summary import Budget

MEANING = """\
`lower <= r_eps <= upper`, where r_eps is the least rank of a matrix within eps of the attention matrix in
every row (l1): what it takes to keep every output that averages values of norm at most one. beta is the
inverse temperature relative to the head's own. Over several windows both ends are those of the largest
r_eps. [report.html](report.html) is the same, sortable."""
SPEARMAN = """\
Spearman correlation over heads of the least r with tau(SVD_r(C)) <= eps, with a 95% bootstrap interval over
heads (estimates). '-': one side is constant, or not defined because the attention has exact zeros."""


def write_report(root: str | Path, proofs: Mapping[str, str] | None = None) -> Path:
    """Write the report of a store into its folder.

    Arguments:
        root: the store. proofs: from ``verify_store``; without it the report says that certificates were
            not read back.

    Returns:
        the path of ``report.html``; ``report.md`` and ``figures/`` are beside it.

    Raises:
        ValueError: no store, or one without cells.
    """
    root = Path(root)
    said = contents(root, proofs)
    (root / "figures").mkdir(exist_ok=True)
    _write(root / "report.md", _markdown(root, said))
    _write(root / "report.html", page(said))
    return root / "report.html"


def _markdown(root: Path, c: Contents) -> str:
    lines = [f"# {c.title}", ""]
    lines += [f"- {name}: {value}" for name, value in c.facts]
    lines += ["", MEANING]
    lines += ["", "## Share of brackets closed", ""]
    lines += table(CLOSING_HEADER, map(closing_row, c.closings))
    for model in c.models:
        lines += ["", f"## {model}", ""]
        mine = [b for b in c.budgets if b.model == model]
        cells = [cell for cell in c.cells if cell["model"] == model]
        lines += _figure(
            root, f"{model} closing", closing_bars([x for x in c.closings if x.model == model], model)
        )
        for beta in sorted({b.beta for b in mine}):
            some = [b for b in mine if b.beta == beta]
            name = f"{model}, beta = {beta:g}"
            lines += [f"### {name}", "", "Hatched: no data. Outlined in red: the bracket is open.", ""]
            lines += _figure(root, f"{model} beta {beta:g}", heat_maps(some, name))
            lines += ["<details><summary>Rank budgets: keep this rank for a guaranteed error</summary>", ""]
            lines += _budget_table(some)
            lines += ["", "</details>", ""]
        lines += _figure(root, f"{model} dimension", dimension_scatter(cells, model))
    lines += ["## SVD dimension of the interaction against certified ranks", ""]
    lines += [SPEARMAN, ""]
    lines += table(CORRELATION_HEADER, map(correlation_row, correlation_groups(c.correlations)))
    return "\n".join(lines) + "\n"


def table(header: Sequence[str], rows: Any) -> list[str]:
    """Lines of a GitHub-flavoured table."""
    line = lambda cells: "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    return [line(header), "|" + "---|" * len(header), *map(line, rows)]


def _budget_table(some: Sequence[Budget]) -> list[str]:
    eps = sorted({b.eps for b in some})
    heads: dict[tuple[int, int], dict[float, Budget]] = {}
    for b in some:
        heads.setdefault((b.layer, b.head), {})[b.eps] = b
    rows = [
        [f"{layer}.{head}", *(str(at[e]) if e in at else "no data" for e in eps)]
        for (layer, head), at in sorted(heads.items())
    ]
    return table(["head", *(f"eps = {e:g}" for e in eps)], rows)


def _figure(root: Path, name: str, figure: Any) -> list[str]:
    if figure is None:
        return []
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-").lower()
    for suffix in ("svg", "png"):
        path = root / "figures" / f"{stem}.{suffix}"
        temporary = path.with_name(f".{path.name}.tmp")
        figure.savefig(temporary, format=suffix, dpi=110)
        os.replace(temporary, path)
    return [f"![{name}](figures/{stem}.svg)", ""]


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
