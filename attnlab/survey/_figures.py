"""Figures of a report: heat maps over layers and heads, and the SVD dimension against certified ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._summary import Budget, Cell, Closing

ENDS = ("lower", "upper", "gap")
NUMBERS = 16  # heat maps with at most this many heads per layer have the numbers written in
MISSING = "0.85"


def heat_maps(found: Sequence[Budget], title: str) -> Any:
    """Certified lower and upper ends and the gap, one row of maps per tolerance.

    Arguments:
        found: budgets of one model and temperature.

    A hatched square is a head without numbers; a red outline marks a bracket that is open.
    """
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    eps = sorted({b.eps for b in found})
    layers, heads = sorted({b.layer for b in found}), sorted({b.head for b in found})
    figure = new_figure(1.2 + 3 * (1.2 + 0.32 * len(heads)), 0.8 + len(eps) * (0.75 + 0.3 * len(layers)))
    axes = np.asarray(figure.subplots(len(eps), 3, squeeze=False))
    most = max((b.upper for b in found if b.upper is not None), default=1)
    for row, e in enumerate(eps):
        at = {(b.layer, b.head): b for b in found if b.eps == e}
        for axis, end in zip(axes[row], ENDS, strict=True):
            values = np.full((len(layers), len(heads)), np.nan)
            for (layer, head), b in at.items():
                value = getattr(b, end)
                i, j = layers.index(layer), heads.index(head)
                values[i, j] = np.nan if value is None else value
                if value is None:
                    axis.add_patch(
                        Rectangle((j - 0.5, i - 0.5), 1, 1, hatch="////", fill=False, ec="0.5", lw=0)
                    )
                elif b.gap and end != "gap":
                    axis.add_patch(
                        Rectangle((j - 0.44, i - 0.44), 0.88, 0.88, fill=False, ec="tab:red", lw=0.7)
                    )
            axis.set_facecolor(MISSING)
            top = max(most, 1) if end != "gap" else max(1, np.nanmax(values, initial=1))
            image = axis.imshow(
                values, cmap="viridis" if end != "gap" else "magma_r", vmin=0, vmax=top, aspect="auto"
            )
            if len(heads) <= NUMBERS:
                _write_numbers(axis, values, top, dark_low=end != "gap")
            axis.set_title(f"{end}, eps = {e:g}", fontsize=9)
            _ticks(axis, layers, heads)
            figure.colorbar(image, ax=axis, pad=0.02, ticks=MaxNLocator(5, integer=True))
    figure.suptitle(title, fontsize=11)
    return _laid_out(figure)


def dimension_scatter(cells: Sequence[Cell], title: str) -> Any:
    """SVD dimension against the certified bracket [lower, upper] of every cell, one panel per tolerance."""
    known = [c for c in cells if c["upper"] is not None and c["svd_dimension"] is not None]
    if not known:
        return None
    eps = sorted({c["eps"] for c in known})
    figure = new_figure(0.6 + 3.0 * len(eps), 3.2)
    axes = np.asarray(figure.subplots(1, len(eps), squeeze=False, sharey=True))[0]
    betas = sorted({c["beta"] for c in known})
    for axis, e in zip(axes, eps, strict=True):
        for index, beta in enumerate(betas):
            some = [c for c in known if c["eps"] == e and c["beta"] == beta]
            x = [c["svd_dimension"] + 0.2 * (index - (len(betas) - 1) / 2) for c in some]
            low, high = ([c[end] for c in some] for end in ("lower", "upper"))
            axis.vlines(x, low, high, color=f"C{index}", lw=1, alpha=0.6)
            axis.scatter(x, high, s=9, color=f"C{index}", marker="v", label=f"beta {beta:g}")
            axis.scatter(x, low, s=9, color=f"C{index}", marker="^")
        axis.set_title(f"eps = {e:g}", fontsize=9)
        axis.set_xlabel("SVD dimension of the interaction")
    axes[0].set_ylabel("certified bracket on the rank")
    axes[0].legend(fontsize=8)
    figure.suptitle(title, fontsize=11)
    return _laid_out(figure)


def closing_bars(found: Sequence[Closing], title: str) -> Any:
    """Share of closed brackets, and the median relative gap, by temperature and tolerance."""
    eps, betas = sorted({c.eps for c in found}), sorted({c.beta for c in found})
    figure = new_figure(8.4, 3.2)
    left, right = figure.subplots(1, 2)
    width = 0.8 / len(betas)
    for index, beta in enumerate(betas):
        some = {c.eps: c for c in found if c.beta == beta}
        x = np.arange(len(eps)) + width * (index - (len(betas) - 1) / 2)
        for axis, name in ((left, "share"), (right, "relative")):
            values = [getattr(some[e], name) if e in some else None for e in eps]
            heights = [np.nan if v is None else v for v in values]
            axis.bar(x, heights, width, color=f"C{index}", label=f"beta {beta:g}")
    for axis, name in ((left, "share of brackets closed"), (right, "median of gap / upper end")):
        axis.set_xticks(range(len(eps)), [f"{e:g}" for e in eps])
        axis.set_xlabel("eps")
        axis.set_title(name, fontsize=9)
    left.set_ylim(0, 1)
    left.legend(fontsize=8)
    figure.suptitle(title, fontsize=11)
    return _laid_out(figure)


def new_figure(width: float, height: float) -> Any:
    """A figure that needs no display and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _laid_out(figure: Any) -> Any:
    """Lay the figure out once: doing it again for every file takes most of the time."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _write_numbers(axis: Any, values: np.ndarray, top: float, dark_low: bool) -> None:
    for (i, j), value in np.ndenumerate(values):
        if np.isnan(value):
            continue
        dark = (value < 0.55 * top) == dark_low
        number = axis.text(
            j, i, f"{value:g}", ha="center", va="center", fontsize=6, color="w" if dark else "k"
        )
        number.set_in_layout(False)  # they stay inside; measuring hundreds of them is slow


def _ticks(axis: Any, layers: Sequence[int], heads: Sequence[int]) -> None:
    for along, labels in (("y", layers), ("x", heads)):
        step = max(1, len(labels) // 12)
        at = range(0, len(labels), step)
        getattr(axis, f"set_{along}ticks")(list(at), [str(labels[i]) for i in at], fontsize=7)
    axis.set_ylabel("layer", fontsize=8)
    axis.set_xlabel("head", fontsize=8)
