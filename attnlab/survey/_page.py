"""``report.html``: one file, no network, tables that sort and figures that answer to the pointer."""

import html
import json
from importlib.resources import files
from typing import Any

from ._contents import (
    CLOSING_HEADER,
    CORRELATION_HEADER,
    Contents,
    closing_row,
    correlation_groups,
    correlation_row,
)
from ._summary import Budget


def page(said: Contents) -> str:
    """The text of the page: ``page.html`` with the numbers put in as JSON."""
    data = {
        "facts": said.facts,
        "eps": sorted({b.eps for b in said.budgets}),
        "budgets": [_budget(said, b) for b in said.budgets],
        "models": said.models,
        "closing": [list(CLOSING_HEADER), *map(closing_row, said.closings)],
        "correlation": [
            list(CORRELATION_HEADER),
            *map(correlation_row, correlation_groups(said.correlations)),
        ],
    }
    template = files("attnlab.survey").joinpath("page.html").read_text(encoding="utf-8")
    # A "</script>" inside a string would end the script.
    content = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return template.replace("@TITLE@", html.escape(said.title)).replace("@DATA@", content)


def _budget(said: Contents, b: Budget) -> dict[str, Any]:
    """One head at one temperature and tolerance, with short names: there are many."""
    found: dict[str, Any] = {
        "m": said.models.index(b.model),
        "b": b.beta,
        "e": b.eps,
        "l": b.layer,
        "h": b.head,
        "w": b.windows,
    }
    if b.ends is None:
        return {**found, "p": b.problem or "no numbers"}
    low, high = b.ends
    error = lambda cell, end: None if cell[f"{end}_error"] is None else float(f"{cell[f'{end}_error']:.4g}")
    return {
        **found,
        "lo": b.lower,
        "up": b.upper,
        "le": error(low, "lower"),
        "ue": error(high, "upper"),
        "lk": low["lower_kind"],
        "sl": low["svd_lower"],
        **{
            name: high[column]
            for name, column in (
                ("su", "svd_upper"),
                ("rc", "row_cover"),
                ("cx", "cross"),
                ("d", "svd_dimension"),
            )
        },
        "n": min(high["rows"], high["columns"]),
    }
