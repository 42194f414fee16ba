"""Files that go with a bracket: certificates, a figure of the error profile, and the numbers as JSON."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._profile import ErrorProfile, RankBracket


def write_report(
    out: Path, profile: ErrorProfile, brackets: Sequence[RankBracket], result: dict[str, Any]
) -> None:
    """Write one certificate per distinct end, ``profile.svg/png`` and ``bracket.json`` into ``out``.

    The paths of the certificates are added to ``result["brackets"]``. Each file is renamed into place.
    """
    out.mkdir(parents=True, exist_ok=True)
    for row, bracket in zip(result["brackets"], brackets, strict=True):
        for end, certificate in (
            ("lower", bracket.lower_certificate),
            ("upper", bracket.upper_certificate),
        ):
            row[f"{end}_certificate"] = None
            if certificate is not None:
                path = out / f"{certificate.kind}-k{certificate.claim['rank']}.npz"
                certificate.save(path)
                row[f"{end}_certificate"] = str(path)
    figure = draw_profile(profile, brackets, result["source"])
    for suffix in ("svg", "png"):
        _by_rename(
            out / f"profile.{suffix}",
            lambda path, s=suffix: figure.savefig(path, format=s, dpi=150, bbox_inches="tight"),
        )
    _by_rename(out / "bracket.json", lambda path: path.write_text(json.dumps(result, indent=1)))


def draw_profile(profile: ErrorProfile, brackets: Sequence[RankBracket], title: str) -> Any:
    """A figure of both certified ends of a_{k+1} against k, with every bracket on its tolerance."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    k = profile.ranks
    axes.fill_between(k, profile.lower, profile.upper, step="post", color="tab:blue", alpha=0.15)
    for values, marker, name in (
        (profile.upper, "v", "upper (factors)"),
        (profile.lower, "^", "lower (certificate)"),
    ):
        shown = values > 1e-12
        axes.plot(k[shown], values[shown], marker + "-", ms=4, lw=1, drawstyle="steps-post", label=name)
    for b in brackets:
        axes.axhline(b.eps, color="0.7", lw=0.8, zorder=0)
        axes.plot([b.lower, b.upper], [b.eps, b.eps], color="tab:red", lw=3, solid_capstyle="butt")
        label = f"r = {b.lower}" if b.closed else f"{b.lower} <= r <= {b.upper}"
        axes.annotate(
            f"eps={b.eps:g}: {label}",
            (max(b.upper, 1), b.eps),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_yscale("log")
    axes.set_xlim(-0.5, 1.4 * max(b.upper for b in brackets) + 2)
    low = min([b.eps for b in brackets] + [float(np.min(profile.lower[profile.lower > 0]))])
    axes.set_ylim(max(low / 3, 1e-6), 2.0)
    axes.set_xlabel("rank k")
    axes.set_ylabel("a_{k+1}: least row l1 error of rank k")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="upper right")
    return figure


def _by_rename(path: Path, write: Callable[[Path], Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
