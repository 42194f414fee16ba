"""The sphere law: r_eps = Theta((1 + beta)^((d-1)/2)) for attention on the unit sphere.

Claim ([I]): self-attention of well spread points on the sphere of R^d has eps-rank of the order
(1 + beta)^((d-1)/2), capped by the number of points. Measured from both ends: in the continuum by
closed forms that are rigorous for every d, and for finite random points by certificates.
"""

import sys

import _lab
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from attnlab.laws import PointAttention, fit_slope, point_bracket, sphere_bracket, sphere_points

EPS = 0.1
DIMS = {"smoke": (2, 3, 4), "small": range(2, 9), "paper": range(2, 9)}
TOP = {"smoke": 11, "small": 15, "paper": 17}  # beta = 2^6 .. 2^(TOP - 1)
# Short ranges of beta are only indicative: degrees are integers.
TOLERANCE = {"smoke": (0.02, 0.08), "small": (0.01, 0.03), "paper": (0.01, 0.03)}
# Finite instances: (d, n, betas).
FINITE = {
    "smoke": [(3, 256, (2, 4))],
    "small": [(3, 1024, (4, 8, 16, 32)), (2, 4096, (64, 256, 1024))],
    "paper": [(3, 1024, (4, 8, 16, 32)), (3, 4096, (4, 8, 16, 32, 64)), (2, 4096, (64, 256, 1024))],
}


def main(argv: list[str] | None = None) -> int:
    run = _lab.start("sphere_law", __doc__ or "", argv=argv)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6))
    continuum, closed, holds = closed_forms(run, axes[0])
    finite, measured, consistent = finite_points(run, axes[1])
    verdict = "holds" if holds and consistent else "does not hold"
    run.save(
        [*continuum, *finite],
        figure,
        "# The sphere law\n\n**Claim.** r_eps = Theta(min(n, (1 + beta)^((d-1)/2))).\n\n"
        f"**Measured, continuum** (eps = {EPS}, beta = 64..{2 ** (TOP[run.preset] - 1)}, both ends "
        f"rigorous; slopes with 95% bootstrap intervals).\n\n{closed}\n\n**Measured, finite** (random "
        "points, certified brackets of that very matrix; the continuum values bound no finite set).\n\n"
        f"{measured}\n\n**Verdict.** Slopes within {TOLERANCE[run.preset][0]} (lower end) and "
        f"{TOLERANCE[run.preset][1]} (upper end) of (d-1)/2 for "
        f"d = 2..5, and finite brackets overlapping the continuum ones: the claim {verdict}.",
    )
    return 0 if holds and consistent else 1


def closed_forms(run: _lab.Run, axis: Axes) -> tuple[list[dict], str, bool]:
    """Continuum brackets, the table of slopes, and whether they match theory for d = 2..5."""
    betas = 2.0 ** np.arange(6, TOP[run.preset])
    rows, lines, holds = [], [], True
    for d in DIMS[run.preset]:
        brackets = [sphere_bracket(d, beta, EPS) for beta in betas]
        lower, upper = (np.array([float(getattr(b, e)) for b in brackets]) for e in ("lower", "upper"))
        slopes = fit_slope(betas, lower), fit_slope(betas, upper)
        offs = [abs(s.slope - (d - 1) / 2) for s in slopes]
        allowed = TOLERANCE[run.preset]
        holds &= d > 5 or (offs[0] <= allowed[0] and offs[1] <= allowed[1])
        # Ranks in high dimension exceed 64 bits: stored as float64.
        rows += [
            {"kind": "continuum", "d": d, "n": None, "beta": b.beta, "eps": EPS,
             "lower": float(b.lower), "upper": float(b.upper)}
            for b in brackets
        ]  # fmt: skip
        lines.append(
            [
                d,
                (d - 1) / 2,
                *(f"{s.slope:.4f} [{s.low:.4f}, {s.high:.4f}]" for s in slopes),
                f"{(upper / lower).min():.2f}..{(upper / lower).max():.2f}",
            ]
        )
        axis.fill_between(betas, lower, upper, alpha=0.3, color=f"C{d - 2}", label=f"d = {d}")
        middle = np.sqrt(lower[0] * upper[0])
        axis.loglog(betas, middle * (betas / betas[0]) ** ((d - 1) / 2), "k:", lw=1)
    axis.set_xlabel("beta")
    axis.set_ylabel(f"eps-rank, eps = {EPS}")
    axis.set_title("continuum: both ends; dotted: slope (d-1)/2")
    axis.legend(fontsize=8)
    header = ["d", "theory", "slope of lower", "slope of upper", "upper / lower"]
    return rows, _lab.markdown_table(header, lines), holds


def finite_points(run: _lab.Run, axis: Axes) -> tuple[list[dict], str, bool]:
    """Certified brackets of random points beside the continuum ones, and whether they overlap."""
    rows, lines, consistent = [], [], True
    for index, (d, n, betas) in enumerate(FINITE[run.preset]):
        ends = []
        for beta in betas:
            points = sphere_points(d, n, float(beta), np.random.default_rng(run.seed))
            lower, upper, how = finite_bracket(points)
            print(f"d={d} n={n} beta={beta}: {lower}..{upper} ({how})", file=sys.stderr)
            limit = sphere_bracket(d, float(beta), EPS)
            consistent &= lower <= limit.upper * 1.25 and limit.lower <= upper
            rows.append(
                {"kind": f"finite, {how}", "d": d, "n": n, "beta": float(beta), "eps": EPS,
                 "lower": float(lower), "upper": float(upper)}
            )  # fmt: skip
            lines.append(
                [d, n, beta, f"{lower}..{upper}", f"{upper / lower:.2f}", how,
                 f"{limit.lower}..{limit.upper}", f"{limit.upper / limit.lower:.2f}"]
            )  # fmt: skip
            ends.append((lower, upper))
        low, high = np.array(ends, float).T
        axis.fill_between(betas, low, high, alpha=0.3, color=f"C{index}", label=f"d = {d}, n = {n}")
        axis.loglog(betas, low, ".-", color=f"C{index}")
        axis.loglog(betas, high, ".-", color=f"C{index}")
        slope = np.sqrt(low[0] * high[0]) * (np.array(betas) / betas[0]) ** ((d - 1) / 2)
        axis.loglog(betas, slope, "k:", lw=1)
    axis.set_xlabel("beta")
    axis.set_title("finite random points: certified")
    axis.legend(fontsize=8)
    header = ["d", "n", "beta", "certified", "ratio", "by", "continuum", "ratio"]
    return rows, _lab.markdown_table(header, lines), consistent


def finite_bracket(points: PointAttention) -> tuple[int, int, str]:
    """Certified ends for one point set and the method behind them."""
    bracket = point_bracket(points, EPS)
    return bracket.lower, bracket.upper, "point_bracket"


if __name__ == "__main__":
    sys.exit(main())
