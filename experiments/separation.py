"""The separation of [M]: W_d(q) = sum_{j<=d} sigma(q_j) has 2d terms and needs 2^d atoms as one head.

Measured: terms, plain product, vertices and the certified minimum for d = 1, 2, ..., with the cost of finding
and of checking; and how many atoms survive when the single head may be off by eps on all of R^d.

[M] Matsuda, "Exact Fusion of Softmax Attention Heads Can Require Exponentially Many Atoms", 2026.
"""

import resource
import sys
import time
from typing import Any

import _lab
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from attnlab.fusion import exact_sigmoid_sum, fuse, robust_lower_bound

DIMS = {"smoke": range(1, 9), "small": range(1, 17), "paper": range(1, 18)}
ROBUST = {"smoke": (1, 2, 3), "small": (1, 2, 3, 4, 5, 6), "paper": (1, 2, 3, 4, 5, 6, 7, 8)}


def main(argv: list[str] | None = None) -> int:
    run = _lab.start("separation", __doc__ or "", argv=argv)
    exact = [exact_row(d) for d in DIMS[run.preset]]
    robust = [row for d in ROBUST[run.preset] for row in robust_rows(d)]
    holds = all(r["lower"] == r["upper"] == 2 ** r["d"] for r in exact)
    holds &= all(r["atoms"] == 2 ** r["d"] for r in robust if r["eps"] < 0.5)
    holds &= all(r["atoms"] == 1 for r in robust if r["eps"] > r["d"] / 2)
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.2))
    draw_exact(exact, axes[0])
    draw_cost(exact, axes[1])
    draw_robust(robust, axes[2])
    columns = ["d", "terms", "product", "vertices", "minimum", "fuse (s)", "verify (s)", "certificates (MB)"]
    lines = [
        [r["d"], r["terms"], r["product"], r["vertices"], r["lower"] if r["lower"] == r["upper"] else "open",
         f"{r['fuse_s']:.3f}", f"{r['verify_s']:.3f}", f"{r['megabytes']:.2f}"]
        for r in exact
    ]  # fmt: skip
    levels = sorted({r["eps"] for r in robust})
    counts = {(r["d"], r["eps"]): r["atoms"] for r in robust}
    robust_table = _lab.markdown_table(
        ["d", *(f"eps = {e:g}" for e in levels)],
        [[d, *(counts.get((d, e), "") for e in levels)] for d in ROBUST[run.preset]],
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    report = f"""# 2d terms against 2^d atoms

**Claim.** W_d has 2d head-atom terms; every single head equal to it has at least 2^d atoms, and 2^d suffice.
A single head within eps < 1/2 of W_d on all of R^d also needs 2^d.

**Measured, exact** (both ends certified in integers; peak memory of the run {peak:.2f} GB).

{_lab.markdown_table(columns, lines)}

**Measured, within eps on all of R^d** (atoms that are certainly needed; the limits of W_d along rays are
integers, so the bound drops at multiples of 1/2, and at eps = d/2 a constant is enough).

{robust_table}

**Verdict.** The claim {"holds" if holds else "does not hold"} for every d measured."""
    run.save([*exact, *robust], figure, report)
    return 0 if holds else 1


def exact_row(d: int) -> dict[str, Any]:
    """Fuse W_d and check both certificates, with times."""
    heads = exact_sigmoid_sum(d)
    start = time.perf_counter()
    result = fuse(heads)
    middle = time.perf_counter()
    verdict = result.certificate.verify()
    end = time.perf_counter()
    if not verdict.holds:
        raise SystemExit(verdict.statement)
    certificates = result.certificate.lower, result.certificate.upper
    size = sum(a.nbytes / 4 for c in certificates for a in c.witness.values())  # text: 4 bytes a character
    print(f"d={d}: {result} in {middle - start:.2f} s", file=sys.stderr)
    return {
        "kind": "exact", "d": d, "terms": result.terms, "product": result.product,
        "vertices": result.vertices, "lower": result.lower, "upper": result.upper,
        "fuse_s": middle - start, "verify_s": end - middle, "megabytes": size / 1e6,
    }  # fmt: skip


def robust_rows(d: int) -> list[dict[str, Any]]:
    """Atoms needed within eps, for eps around the multiples of 1/2."""
    heads = exact_sigmoid_sum(d)
    levels = [0.1, 0.49, *(x / 2 + y for x in range(1, d + 1) for y in (0.0, 0.01))]
    rows = []
    for eps in levels:
        atoms = robust_lower_bound(heads, eps)
        rows.append({"kind": "robust", "d": d, "eps": eps, "atoms": atoms})
    print(f"robust d={d}: {[r['atoms'] for r in rows]}", file=sys.stderr)
    return rows


def draw_exact(rows: list[dict[str, Any]], axis: Axes) -> None:
    d = [r["d"] for r in rows]
    axis.semilogy(d, [r["upper"] for r in rows], "v", ms=9, mfc="none", color="C1", label="one head (found)")
    axis.semilogy(d, [r["lower"] for r in rows], "^-", ms=5, color="C0", label="one head (certified minimum)")
    axis.semilogy(d, [r["terms"] for r in rows], "s-", ms=4, color="C2", label="sum of heads: 2d terms")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("d")
    axis.set_ylabel("atoms")
    axis.set_title("exact fusion of W_d")
    axis.legend(fontsize=8)


def draw_cost(rows: list[dict[str, Any]], axis: Axes) -> None:
    d = [r["d"] for r in rows]
    axis.semilogy(d, [r["fuse_s"] for r in rows], "o-", ms=4, color="C0", label="fuse, with both checks")
    axis.semilogy(
        d, [r["verify_s"] for r in rows], "o-", ms=4, color="C3", label="check both certificates again"
    )
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("d")
    axis.set_ylabel("seconds")
    axis.set_title("cost")
    axis.legend(fontsize=8)


def draw_robust(rows: list[dict[str, Any]], axis: Axes) -> None:
    for i, d in enumerate(sorted({r["d"] for r in rows})):
        mine = [r for r in rows if r["d"] == d]
        eps = [0.0, *(r["eps"] for r in mine)]
        atoms = [2**d, *(r["atoms"] for r in mine)]
        axis.plot(
            eps,
            atoms,
            drawstyle="steps-post",
            color=f"C{i}",
            lw=1 + 0.5 * (6 - i),
            alpha=0.8,
            label=f"d = {d}",
        )
    axis.set_yscale("log", base=2)
    axis.set_xlabel("eps, error allowed on all of R^d")
    axis.set_ylabel("atoms certainly needed")
    axis.set_title("robust separation")
    axis.legend(fontsize=8)


if __name__ == "__main__":
    sys.exit(main())
