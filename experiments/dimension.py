"""Does the tolerance-indexed SVD dimension of the intrinsic interaction track the certified rank?

Claim ([I], as a question): the least r with tau(SVD_r(C)) <= tolerance is read off one spectrum; the
eps-rank needs certificates. Over learned heads the two are compared by rank correlation. Upper ranks come
from explicit constructions, each verified: truncated SVD of A, and a cover of its rows by rows.
"""

import sys
from pathlib import Path

import _lab
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import rankdata

from attnlab.certify import Certificate
from attnlab.interaction import row_cover, svd_dimension

HEADS = Path(__file__).parents[1] / "tests" / "data" / "minilm_heads.npz"
LEVELS = {"smoke": (0.2, 0.5), "small": (0.1, 0.2, 0.3, 0.5, 0.8), "paper": (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)}
CONSTRUCTIONS = ("truncated SVD", "row cover")


def verified_rank(a: np.ndarray, u: np.ndarray, w: np.ndarray, eps: float) -> int:
    """The rank of the certificate, or the full size if it does not verify."""
    claim = {"rank": len(w), "error": eps * (1 + 1e-12)}
    holds = Certificate("rank-upper", claim, {"U": u, "W": w}, {"attention": a}).verify().holds
    return len(w) if holds else len(a)


def truncated_rank(a: np.ndarray, eps: float) -> int:
    u, s, vt = np.linalg.svd(a)
    for k in range(1, len(s) + 1):
        if np.abs(a - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max() <= eps * (1 - 1e-12):
            return verified_rank(a, u[:, :k] * s[:k], vt[:k], eps)
    return len(a)


def spearman(x: list[int], y: list[int]) -> float:
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def main(argv: list[str] | None = None) -> int:
    run = _lab.start("dimension", __doc__ or "", argv=argv)
    with np.load(HEADS) as data:
        logits, heads = data["logits"].astype(float), data["heads"]
    rows, lines = [], []
    figure, axis = plt.subplots(figsize=(6.5, 4.5))
    for index, eps in enumerate(LEVELS[run.preset]):
        found = []
        for (layer, head), z in zip(heads, logits, strict=True):
            a = np.exp(z - z.max(1, keepdims=True))
            a /= a.sum(1, keepdims=True)
            ranks = {
                "svd dimension": svd_dimension(a, eps),
                "truncated SVD": truncated_rank(a, eps),
                "row cover": verified_rank(a, *row_cover(a, eps * (1 - 1e-12)), eps),
            }
            found.append({"layer": int(layer), "head": int(head), "eps": eps} | ranks)
        rows += found
        dimension = [f["svd dimension"] for f in found]
        correlations = [spearman(dimension, [f[c] for f in found]) for c in CONSTRUCTIONS]
        medians = [f"{np.median([f[c] for f in found]):g}" for c in CONSTRUCTIONS]
        lines.append([eps, f"{np.median(dimension):g}", *medians, *(f"{c:.2f}" for c in correlations)])
        axis.scatter(dimension, [f["truncated SVD"] for f in found], s=18, color=f"C{index}", label=f"{eps}")
    axis.set_xlabel("tolerance-indexed SVD dimension of C")
    axis.set_ylabel("certified upper rank (truncated SVD of A)")
    axis.legend(title="eps = tolerance", fontsize=8)
    table = _lab.markdown_table(
        ["eps", "median dimension", *(f"median {c}" for c in CONSTRUCTIONS),
         *(f"Spearman with {c}" for c in CONSTRUCTIONS)], lines
    )  # fmt: skip
    weakest = min(float(line[4]) for line in lines)
    run.save(
        rows,
        figure,
        "# SVD dimension against certified rank\n\n**Question.** Does the tolerance-indexed SVD dimension "
        f"of the intrinsic interaction track the eps-rank?\n\n**Measured.** {len(heads)} MiniLM heads of "
        f"64 tokens, upper ranks verified; correlations are estimates over few heads.\n\n{table}\n\n"
        f"**Verdict.** The weakest rank correlation with the truncated-SVD rank is {weakest:.2f}.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
