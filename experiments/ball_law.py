"""The ball law: r_eps = Theta(beta^(d/2)) for points in a ball, from certified finite brackets.

Claim ([I]): over the ball of radius 1/2, attention at inverse temperature beta has eps-rank of the
order beta^(d/2), once there are exponentially many points (n >= C_d e^(beta/8)). Equal points
merge into one weighted column, so that many points need only a few hundred distinct ones.
"""

import sys

import _lab
import matplotlib.pyplot as plt
import numpy as np

from attnlab.laws import ball_bracket, fit_slope

EPS = 0.2
BETAS = {
    "smoke": {1: [16, 64, 256, 1024], 2: [64, 128, 256]},
    "small": {1: [2**i for i in range(4, 13)], 2: [2**i for i in range(7, 12)]},
    "paper": {1: [2**i for i in range(4, 14)], 2: [2**i for i in range(6, 12)]},
}
# The boundary of the ball carries its own, lower-order term, so short ranges are only indicative.
TOLERANCE = {"smoke": 0.2, "small": 0.05, "paper": 0.05}


def main(argv: list[str] | None = None) -> int:
    run = _lab.start("ball_law", __doc__ or "", argv=argv)
    rows, lines, holds = [], [], True
    figure, axis = plt.subplots(figsize=(6.5, 4.5))
    for d, betas in BETAS[run.preset].items():
        brackets = []
        for beta in betas:
            brackets.append(ball_bracket(d, beta, EPS))
            print(brackets[-1], file=sys.stderr)
        lower, upper = ([getattr(b, end) for b in brackets] for end in ("lower", "upper"))
        rows += [
            {"d": d, "beta": float(b.beta), "eps": EPS, "lower": b.lower, "upper": b.upper,
             "points": b.points, "log10_size": b.log10_size, "upper_error": b.upper_error}
            for b in brackets
        ]  # fmt: skip
        slopes = [fit_slope(betas, end) for end in (lower, upper)]
        holds &= all(abs(s.slope - d / 2) <= TOLERANCE[run.preset] for s in slopes)
        lines.append(
            [d, f"{betas[0]}..{betas[-1]}", d / 2]
            + [f"{s.slope:.3f} [{s.low:.3f}, {s.high:.3f}]" for s in slopes]
            + [f"{lower[-1]}..{upper[-1]}", f"{brackets[-1].points} / 10^{brackets[-1].log10_size:.0f}"]
        )
        colour = f"C{d - 1}"
        axis.fill_between(betas, lower, upper, alpha=0.3, color=colour, label=f"d = {d}: certified")
        axis.loglog(betas, lower, ".-", color=colour)
        axis.loglog(betas, upper, ".-", color=colour)
        middle = np.sqrt(lower[0] * upper[0])
        axis.loglog(betas, middle * (np.array(betas) / betas[0]) ** (d / 2), "k:", lw=1)
    axis.plot([], [], "k:", label="slope d/2")
    axis.set_xlabel("beta")
    axis.set_ylabel(f"eps-rank, eps = {EPS}")
    axis.legend()
    table = _lab.markdown_table(
        ["d", "beta", "theory", "slope of lower", "slope of upper", "last bracket", "distinct / points"],
        lines,
    )
    verdict = "holds" if holds else "does not hold"
    run.save(
        rows,
        figure,
        "# The ball law\n\n**Claim.** r_eps = Theta(beta^(d/2)) for attention over a ball with "
        "exponentially many points.\n\n**Measured.** Brackets certified for weighted grids in the ball "
        f"of radius 1/2; slopes by least squares with 95% bootstrap intervals.\n\n{table}\n\n"
        f"**Verdict.** With both slopes within {TOLERANCE[run.preset]} of d/2, the claim {verdict}.",
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
