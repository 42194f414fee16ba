"""Distilling learned heads: one head with few atoms for the sum of two heads of MiniLM.

The query of the sum is the pair of the heads' queries, and it ranges over the convex hull of the pairs
that occur in one text (64 tokens). The values are those of the checkpoint, 32 numbers per head, side by
side as the model concatenates them before its output projection: the sum has values in R^64, and a single
head has to follow both halves with one softmax. Everything here is a sampled estimate on random points of
the hull; nothing is certified. Beside it, the baseline that selects atoms by orthogonal matching pursuit
with non-negative weights (arXiv 2602.16284).
"""

import sys
import time
from pathlib import Path

import _lab
import jax
import matplotlib.pyplot as plt
import numpy as np

from attnlab.fusion._distill import distill, select_atoms
from attnlab.heads import Head, HeadSum

DATA = Path(__file__).parents[1] / "tests" / "data"
PAIRS = {"smoke": 1, "small": 3, "paper": 9}
COUNTS = {"smoke": [1, 4], "small": [1, 2, 4, 8, 16], "paper": [1, 2, 4, 8, 16, 32, 64]}
TRAIN = {"smoke": 256, "small": 16384, "paper": 131072}
STEPS = {"smoke": 150, "small": 1200, "paper": 6000}
TEST = 8192


def main(argv: list[str] | None = None) -> int:
    jax.config.update("jax_enable_x64", True)
    run = _lab.start("distill", __doc__ or "", argv=argv)
    rows = []
    for pair in range(PAIRS[run.preset]):
        rows += case(run, pair)
    figure, axis = plt.subplots(figsize=(6.4, 4.4))
    for method, style in (("fit", "o-"), ("subset (OMP)", "s--")):
        for name in dict.fromkeys(r["heads"] for r in rows):
            here = [r for r in rows if (r["method"], r["heads"]) == (method, name)]
            axis.plot(
                [r["atoms"] for r in here],
                [r["test error"] / r["constant error"] for r in here],
                style,
                color=f"C{list(dict.fromkeys(r['heads'] for r in rows)).index(name)}",
                label=f"{name}, {method}",
            )
    axis.set_xscale("log", base=2)
    axis.set(
        yscale="log",
        xlabel="atoms of one head",
        ylabel="largest error / that of a constant (sampled)",
        title="Two MiniLM heads (64 atoms each) as one, on unseen points of the hull",
    )
    axis.legend(fontsize=7)
    table = [
        [
            r["heads"],
            r["method"],
            r["atoms"],
            f"{r['train error']:.4f}",
            f"{r['test error']:.4f}",
            f"{r['constant error']:.4f}",
            f"{r['seconds']:.1f}",
        ]
        for r in rows
    ]
    header = ["heads", "method", "atoms", "train error", "test error", "constant", "seconds (all counts)"]
    wins = sum(
        a["test error"] < b["test error"]
        for a in rows
        for b in rows
        if a["method"] == "fit"
        and b["method"] != "fit"
        and (a["heads"], a["atoms"]) == (b["heads"], b["atoms"])
    )
    total = len(rows) // 2
    most = max(r["atoms"] for r in rows)
    best = [r["test error"] / r["constant error"] for r in rows if (r["method"], r["atoms"]) == ("fit", most)]
    gap = max(r["test error"] / r["train error"] for r in rows if r["method"] == "fit")
    run.save(
        rows,
        figure,
        "# One head for two learned heads\n\n**Question.** How many atoms does one head need to follow the "
        "sum of two learned heads on the convex hull of their own queries?\n\n**Measured** (largest "
        "Euclidean error of the 64 values, the checkpoint's own; sampled estimates on random convex "
        f"combinations, {TEST:,} test points not seen by the fit; fits carry all lanes, the baseline one "
        f"greedy pass):\n\n{_lab.markdown_table(header, table)}\n\n"
        f"**Verdict.** The fit is below the subset baseline on test points in {wins} of {total} cells; its "
        f"largest error there is {gap:.2f} times that on training points, or less. With {most} atoms it is "
        f"{min(best):.2f} to {max(best):.2f} of what a constant reaches.",
    )
    return 0


def case(run: _lab.Run, pair: int) -> list[dict]:
    with np.load(DATA / "minilm_heads.npz") as data:
        q, k, names = data["q"].astype(float), data["k"].astype(float), data["heads"]
    with np.load(DATA / "minilm_values.npz") as data:
        v = data["v"].astype(float)
    together = [(i, j) for i in range(len(names)) for j in range(i) if names[i][0] == names[j][0]]
    second, first = together[:: max(1, len(together) // max(PAIRS.values()))][pair]  # heads of one layer
    size, zeros = k.shape[-1], np.zeros_like(k[0])
    sides = {first: lambda x: np.concatenate([x, zeros], 1), second: lambda x: np.concatenate([zeros, x], 1)}
    target = HeadSum([Head(side(k[i]) / np.sqrt(size), side(v[i])) for i, side in sides.items()])
    rng = np.random.default_rng(run.seed + pair)
    corners = np.concatenate([q[first], q[second]], 1)
    train, test = (
        hull(corners, TRAIN[run.preset], rng),
        hull(corners, TEST + len(corners), rng)[len(corners) :],
    )
    wanted = np.asarray(jax.vmap(target)(test))
    middles = (wanted.mean(0), 0.5 * (wanted.max(0) + wanted.min(0)))
    constant = min(float(np.linalg.norm(wanted - c, axis=1).max()) for c in middles)
    label = " + ".join(f"L{names[i][0]}H{names[i][1]}" for i in (first, second))
    rows = []
    methods = {
        "fit": lambda: distill(target, COUNTS[run.preset], train, key=run.seed, steps=STEPS[run.preset]),
        "subset (OMP)": lambda: select_atoms(target, COUNTS[run.preset], train),
    }
    for method, work in methods.items():
        begin = time.perf_counter()
        found = work()
        seconds = time.perf_counter() - begin
        for m, error, out in zip(found.counts, found.errors, found.error_on(test, wanted), strict=True):
            rows.append(
                {
                    "heads": label,
                    "method": method,
                    "atoms": m,
                    "train error": error,
                    "test error": out,
                    "constant error": constant,
                    "seconds": seconds,
                }
            )
    return rows


def hull(corners: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The corners, and random convex combinations from nearly a corner to nearly the mean."""
    shapes = 10.0 ** rng.uniform(-2, 0, count)
    mixtures = np.stack([rng.dirichlet(np.full(len(corners), a)) for a in shapes])
    return np.concatenate([corners, mixtures @ corners])[:count]


if __name__ == "__main__":
    sys.exit(main())
