"""The interaction profile of learned heads: time, compiles, and the gain over native coordinates.

Run: ``python benchmarks/profile.py [FILE.npz]``. FILE holds ``logits`` (..., n, n), ``q`` and ``k``
(..., n, d) of a head each, logits = q k' / sqrt(d) up to row constants; by default the few MiniLM
heads of the tests. The peer is the best coordinate or principal subspace of q and k of the same
rank.

A cell is void if no interaction of its rank was found with tau < eps. It is void for good if ``tau_floor``
is at least eps: then there is none. What lies between is what a better search could still win.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np

from attnlab.interaction import profile, tau_floor

EPS = (0.1, 0.2, 0.5)
RANKS = tuple(range(1, 17))
DEFAULT = Path(__file__).parents[1] / "tests" / "data" / "minilm_heads.npz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    with np.load(args.file) as data:
        logits, q, k = (data[name] for name in ("logits", "q", "k"))
    logits = logits.reshape(-1, *logits.shape[-2:]).astype(float)
    q, k = (part.reshape(-1, *part.shape[-2:]).astype(float) for part in (q, k))
    gains, costs, floors, native_void, times = [], [], [], 0, []
    for z, head_q, head_k in zip(logits, q, k, strict=True):
        a = np.exp(z - z.max(1, keepdims=True))
        a /= a.sum(1, keepdims=True)
        start = time.perf_counter()
        found = profile(a, EPS, RANKS, native=(head_q / np.sqrt(head_q.shape[1]), head_k))
        times.append(time.perf_counter() - start)
        gains.append(found.gain)
        costs.append(found.tau)
        native_void += int(np.isinf(found.native_term).sum())
        floors.append([tau_floor(a, r) for r in RANKS])
    gain, cost, floor = np.array(gains), np.array(costs), np.array(floors)
    level = np.array(EPS)[None, :, None]
    void, proved = cost >= level, floor[:, None, :] >= level
    print(f"{len(times)} heads, ranks 1..16, eps {EPS}: {sum(times):.1f} s in all, first head "
          f"{times[0]:.1f} s (with compilation), later {np.median(times[1:]):.2f} s each.")  # fmt: skip
    print(f"Cells {void.size}: bound void for {void.sum()} here, for {native_void} in native coordinates.")
    print(f"tau found over its floor: median {np.median(cost.min(1) / floor):.2f}, "
          f"90% below {np.quantile(cost.min(1) / floor, 0.9):.2f}.")  # fmt: skip
    for index, eps in enumerate(EPS):
        print(f"eps {eps}: {void[:, index].sum()} of {void[:, index].size} cells void, "
              f"{proved[:, index].sum()} of them whatever is retained (tau floor >= eps).")  # fmt: skip
        both = gain[:, index][np.isfinite(gain[:, index])]
        only = int(np.isinf(gain[:, index]).sum())
        said = f"median gain {np.median(both):.1f} over {both.size} cells" if both.size else "no common cell"
        print(f"eps {eps}: {said} where both are finite; {only} cells where only native is void.")
    defined = gain[~np.isnan(gain)]
    print(f"Never worse than native: {bool((defined >= 1).all())} ({defined.size} cells compared).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
