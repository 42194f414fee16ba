"""Exponents, tables and the figure of ``scaling.py``, from its rows alone."""

import os
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from _lab import markdown_table  # pyright: ignore[reportMissingImports]  # path set by scaling.py
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from attnlab.laws import fit_slope

Row = dict[str, Any]
LARGE = 3  # an exponent is fitted to at most the largest 2^LARGE-fold range of sizes
LEAST = {"peak_mb": 16.0}  # less is noise of the allocator
AXES = (
    ("n", "n", "n: size of the matrix"),
    ("bracket", "n", "n: size of the matrix"),
    ("streamed", "n", "n: size of the matrix"),
    ("rank", "rank", "rank k"),
    ("lanes", "lanes", "lanes"),
    ("d", "d", "dimension or affine rank"),
)


def series(rows: Sequence[Row], section: str, variable: str, value: str) -> dict[str, tuple[list, list]]:
    """x and y of every series of a section, in order of x."""
    found: dict[str, tuple[list, list]] = {}
    for row in sorted((r for r in rows if r["section"] == section), key=lambda r: r[variable] or 0):
        if row[variable] is not None and row[value] is not None:
            x, y = found.setdefault(row["series"], ([], []))
            x.append(row[variable])
            y.append(row[value])
    return found


def baseline(rows: Sequence[Row]) -> float:
    """Peak memory of a process that compiles and runs searches at n = 16, in MB."""
    return next((r["peak_mb"] for r in rows if r["section"] == "start"), 0.0)


def exponents(rows: Sequence[Row]) -> str:
    """Fitted power laws of time, and of memory above the start, over the largest sizes."""
    table, base = [], baseline(rows)
    for section, variable, _ in AXES:
        for value, unit in (("seconds", "time"), ("peak_mb", "memory")):
            for name, (x, y) in series(rows, section, variable, value).items():
                if value == "peak_mb":
                    if section not in ("n", "bracket", "streamed"):
                        continue
                    y = np.subtract(y, base)
                kept = [
                    (a, b)
                    for a, b in zip(x, y, strict=True)
                    if b > LEAST.get(value, 0) and a >= max(x) / 2**LARGE
                ]
                if len(kept) < 3:
                    continue
                a, b = zip(*kept, strict=True)
                law = fit_slope(a, b)
                table.append([name, unit, f"{variable} = {min(a)} .. {max(a)}", f"{law.slope:.2f}",
                              f"[{law.low:.2f}, {law.high:.2f}]", len(a)])  # fmt: skip
    return markdown_table(["series", "of", "range", "exponent", "95% bootstrap", "points"], table)


def write(rows: Sequence[Row], skipped: Sequence[str]) -> str:
    """The report."""
    base = baseline(rows)
    parts = [
        "# Scaling\n",
        "Every point in a fresh process; times are the least of three calls after a first one that compiles, "
        f"compile time apart. A process that compiles and searches at n = 16 peaks at {base:.0f} MB, "
        "and memory exponents are of what is above that. Search times include the starts made on the host.\n",
        f"## Exponents\n\n{exponents(rows)}\n",
    ]
    for title, make in (
        ("Size", sizes),
        ("Lanes", lanes),
        ("Devices", devices),
        ("Precision", precision),
        ("Effort", efforts),
        ("Peers in the same process", peers),
    ):
        if text := make(rows):
            parts.append(f"## {title}\n\n{text}\n")
    if skipped:
        parts.append("Not measured: " + "; ".join(skipped) + ".\n")
    return "\n".join(parts)


def sizes(rows: Sequence[Row]) -> str:
    kept = [r for r in rows if r["section"] in ("n", "bracket", "streamed") and r["n"]]
    table = [
        [r["series"], r["n"], _seconds(r["seconds"]), _seconds(r["compile_seconds"]), f"{r['peak_mb']:.0f}",
         "" if r["low"] is None else f"[{r['low']:.0f}, {r['high']:.0f}]"]
        for r in sorted(kept, key=lambda r: (r["section"], r["series"], r["n"]))
    ]  # fmt: skip
    header = ["series", "n", "run (s)", "compile (s)", "peak MB", "bracket"]
    return markdown_table(header, table) if table else ""


def lanes(rows: Sequence[Row]) -> str:
    found = series(rows, "lanes", "lanes", "seconds")
    if not found:
        return ""
    table = []
    for name, (x, y) in found.items():
        if name.endswith("unpadded"):
            continue
        alone = found.get(f"{name}, unpadded", ([1], [np.nan]))[1][0]
        for count, seconds in zip(x, y, strict=True):
            table.append([name, count, _seconds(seconds), f"{count / seconds:.1f}", f"{seconds / y[0]:.1f}",
                          f"{seconds / alone:.1f}"])  # fmt: skip
    header = ["series", "lanes", "run (s)", "lanes per second", "over the call with 1 lane",
              "over a program of 1 lane"]  # fmt: skip
    first = next(r for r in rows if r["section"] == "lanes")
    return (
        f"n = {first['n']}, rank {first['rank']}, {first['steps']} steps, {first['devices']} device(s). A "
        "call with one lane is padded to a chunk on one device; a program of one lane is not padded.\n\n"
        f"{markdown_table(header, table)}"
    )


def devices(rows: Sequence[Row]) -> str:
    found = series(rows, "devices", "devices", "seconds")
    table = [
        [name, count, _seconds(s), f"{y[0] / s:.2f}x"]
        for name, (x, y) in found.items()
        for count, s in zip(x, y, strict=True)
    ]
    text = markdown_table(["64 lanes", "devices", "run (s)", "speed-up"], table)
    return f"{text}\n\nOn {os.cpu_count()} cores: CPU devices beyond that share them." if table else ""


def precision(rows: Sequence[Row]) -> str:
    mine = [r for r in rows if r["section"] == "precision"]
    ends = [r for r in mine if r["series"] == "ends"]
    if not ends:
        return ""
    table = []
    for k in sorted({r["rank"] for r in ends}):
        low, high = (np.array([r[end] for r in ends if r["rank"] == k]) for end in ("low", "high"))
        cells = [f"{x:.4f}" for x in (np.median(low), low.min(), np.median(high), high.max())]
        table.append([k, len(low), *cells])
    heads = {r["text"] for r in ends}
    seconds = {p: sum(r["seconds"] for r in mine if r["series"] == f"profile, {p}")
               for p in ("float32", "float64")}  # fmt: skip
    losses = np.array([[1 - r["low"], r["high"] - 1] for r in ends])
    agree = [r for r in mine if r["series"] == "against one CPU device"]
    header = ["k", "heads", "lower: median ratio", "worst", "upper: median ratio", "worst"]
    return (
        f"Ends of a float32 search over those of a float64 search, {len(heads)} MiniLM heads.\n\n"
        f"{markdown_table(header, table)}\n\nFloat32 loses at most {max(losses.max(), 0):.1%} on an end, "
        f"more than 1% on {np.sum(losses > 0.01)} of {losses.size} ends, and takes "
        f"{seconds['float32'] / seconds['float64']:.2f} of the time."
        + "".join(
            f"\n\nFloat32 ends on {r['devices']} {r['task']} device(s) over those on one CPU device, ranks "
            f"{r['text']}: lower {r['low']:.4f} to {r['value']:.4f}, "
            f"upper at most {r['high']:.4f}."
            for r in agree
        )
    )


def efforts(rows: Sequence[Row]) -> str:
    mine = [r for r in rows if r["section"] == "effort"]
    table = [[r["series"], _seconds(r["seconds"]), _seconds(r["compile_seconds"]), r["text"]] for r in mine]
    header = ["effort", "run (s)", "compile (s)", "brackets"]
    return f"{mine[0]['task']}, every core a device.\n\n{markdown_table(header, table)}" if mine else ""


def peers(rows: Sequence[Row]) -> str:
    table = [
        [r["series"], r["task"], _seconds(r["peer_seconds"]), _seconds(r["seconds"]), f"{r['value']:.3g}",
         r["text"]]
        for r in rows
        if r["section"] == "peers"
    ]  # fmt: skip
    header = ["peer", "task", "peer (s)", "attnlab (s)", "time ratio", "results"]
    return markdown_table(header, table) if table else ""


def draw(rows: Sequence[Row]) -> Figure:
    """Time and memory against every size that was varied."""
    figure, grid = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    base = baseline(rows)
    time_n, memory_n, rank, lane, device, dimension = grid.ravel()
    for section in ("n", "bracket", "streamed"):
        _lines(time_n, series(rows, section, "n", "seconds"))
        found = series(rows, section, "n", "peak_mb")
        above = {k: (np.array(x), np.subtract(y, base)) for k, (x, y) in found.items()}
        _lines(
            memory_n, {k: (x[y > LEAST["peak_mb"]], y[y > LEAST["peak_mb"]]) for k, (x, y) in above.items()}
        )
    _lines(rank, series(rows, "rank", "rank", "seconds"))
    _lines(lane, series(rows, "lanes", "lanes", "seconds"))
    _lines(dimension, series(rows, "d", "d", "seconds"))
    found = series(rows, "devices", "devices", "seconds")
    _lines(device, {k: (x, y[0] / np.array(y)) for k, (x, y) in found.items()}, log=False)
    for axes, x, y in (
        (time_n, "n", "seconds"),
        (memory_n, "n", "peak MB above a search at n = 16"),
        (rank, "rank k", "seconds"),
        (lane, "lanes", "seconds"),
        (device, "devices", "speed-up of 64 lanes"),
        (dimension, "dimension of queries, or affine rank", "seconds"),
    ):
        axes.set(xlabel=x, ylabel=y)
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=6.5)
    return figure


def _lines(axes: Axes, found: dict[str, tuple[Any, Any]], log: bool = True) -> None:
    for name, (x, y) in found.items():
        if len(x):
            axes.plot(x, y, "o-", ms=4, lw=1, label=name)
    if log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
