"""Does the larger certificate close brackets? R2b with more than k + 1 directions, from the best of R2.

Run: ``python benchmarks/rank_psd.py`` (about 8 minutes on 2 cores). A ``rank-lower-psd`` certificate holds R
with s >= k + 1 columns and weights p_j for every row j; s = k + 1 with the best p_j is the Bernstein bound
of ``search_lower``. On homogeneous problems s > k + 1 proves more. This script starts at the best Bernstein
witness of a learned head, adds extra directions (the next singular ones) of several sizes, and climbs with
Adam in R and all p_j at once; the sums of smallest eigenvalues are differentiated on the host. A value above
the Bernstein one would be a better bound. Values are float64 estimates; the starting one is certified.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import jax
import numpy as np
from rank import learned_heads, proved
from rich.progress import track

from attnlab.rank._lower import search_lower

HERE = Path(__file__).parent
HEAD, RANKS, EXTRA, SIZES, STEPS, RATE = "layer 0 head 0", (8, 16, 32), (1, 3), (1e-3, 0.03, 0.3), 1000, 0.003


def bernstein(a: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """R, C and the certified bound of the best of eight starts."""
    lanes = np.arange(8)
    found, _ = search_lower(
        a, np.full(8, k), lanes, 3000, np.float32, np.random.default_rng(0), min(a.shape) // 2 + 1
    )
    r, c = min(found, key=lambda f: np.abs(f[1]).sum(1).max())
    return r, c, proved("rank-lower", k, {"R": r, "C": c}, a)


class Climb:
    """The bound as a function of R (N, s) and the logits of the weights (N, m), with its gradient."""

    def __init__(self, a: np.ndarray, k: int, r: np.ndarray, p: np.ndarray):
        self.a, self.k, self.r, self.logits = a, k, r, np.log(p + 1e-6)
        self.t = np.full(len(r), 1e3)
        self._evaluate(60)

    def _evaluate(self, rounds: int) -> None:
        """t_j with zero sum of the s - k smallest eigenvalues of G_j - t_j r_j r_j', by Newton from above."""
        raw = np.exp(self.logits - self.logits.max(1, keepdims=True))
        self.p, self.image = raw / raw.sum(1, keepdims=True), self.a @ self.r
        gram = np.einsum("ji,ia,ib->jab", self.p, self.image, self.image, optimize=True)
        for _ in range(rounds):
            shifted = gram - self.t[:, None, None] * self.r[:, :, None] * self.r[:, None, :]
            self.v = np.linalg.eigh(shifted)[1][:, :, : self.r.shape[1] - self.k]
            self.projected = np.einsum("ja,jac->jc", self.r, self.v)
            self.size = np.maximum((self.projected**2).sum(1), 1e-300)
            before, self.t = (
                self.t,
                np.einsum("jac,jab,jbc->j", self.v, gram, self.v, optimize=True) / self.size,
            )
            if np.allclose(before, self.t, rtol=1e-6):
                break

    @property
    def value(self) -> float:
        return float(np.sqrt(self.t.min()))

    def gradient(self, heat: float) -> tuple[np.ndarray, np.ndarray]:
        """Of the softened minimum of log t_j, with respect to R and the logits."""
        share = np.exp(-(np.log(self.t) - np.log(self.t.min())) / heat)
        g = share / share.sum() / self.t / self.size
        seen = np.einsum("ia,jac->jic", self.image, self.v, optimize=True)
        by_p = g[:, None] * (seen**2).sum(2)
        by_image = 2 * np.einsum("j,ji,jic,jac->ia", g, self.p, seen, self.v, optimize=True)
        by_r = self.a.T @ by_image - 2 * (g * self.t)[:, None] * np.einsum(
            "jc,jac->ja", self.projected, self.v
        )
        return by_r, self.p * (by_p - (self.p * by_p).sum(1, keepdims=True))

    def run(self, steps: int, rate: float) -> float:
        """Adam; the best value met."""
        best = self.value
        first = [np.zeros_like(self.r), np.zeros_like(self.logits)]
        second = [np.zeros_like(self.r), np.zeros_like(self.logits)]
        for i in range(steps):
            done = i / steps
            step = rate * min(1, 2 * (1 - done)) * min(1, (i + 1) / 30)
            moves = []
            for slot, g in enumerate(self.gradient(0.03 * 10 ** (-1.5 * done))):
                first[slot] = 0.9 * first[slot] + 0.1 * g
                second[slot] = 0.99 * second[slot] + 0.01 * g * g
                root = np.sqrt(second[slot] / (1 - 0.99 ** (i + 1))) + 1e-12
                moves.append(step * first[slot] / (1 - 0.9 ** (i + 1)) / root)
            self.r = self.r + np.sqrt((self.r**2).mean()) * moves[0]
            self.logits = self.logits + 10 * moves[1]
            self.t *= 1.02  # Newton needs a start above the root
            self._evaluate(4)
            best = max(best, self.value)
        return best


def start(a: np.ndarray, k: int, r: np.ndarray, p: np.ndarray, extra: int, size: float) -> np.ndarray:
    """R with unit Gram matrix (mean weights), and ``extra`` singular directions of relative size ``size``."""
    mean = p.mean(0)[:, None]
    image = a @ r
    r = r @ np.linalg.cholesky(np.linalg.inv(image.T @ (mean * image)))
    _, s, vt = np.linalg.svd(a)
    more = vt.T / s
    more = more - r @ ((a @ r).T @ (mean * (a @ more)))
    norms = np.sqrt((mean * (a @ more) ** 2).sum(0))
    chosen = np.argsort(-norms[: k + 3 * extra + 4])[:extra]
    return np.hstack([r, size * more[:, chosen] / norms[chosen]])


def table(a: np.ndarray, ranks: tuple[int, ...], steps: int) -> str:
    lines = [
        "| k | Bernstein (R2), certified | extra directions | their size | start | best reached | gain |",
        "|" + "---|" * 7,
    ]
    cases = [(k, e, size) for k in ranks for e in EXTRA for size in SIZES]
    witness: dict[int, tuple[np.ndarray, np.ndarray, float]] = {}
    for k, extra, size in track(cases, description="climbs"):
        if k not in witness:
            witness[k] = bernstein(a, k)
        r, c, bound = witness[k]
        p = np.abs(c) / np.abs(c).sum(1, keepdims=True)
        climb = Climb(a, k, start(a, k, r, p, extra, size), p)
        first, best = climb.value, climb.run(steps, RATE)
        lines.append(
            f"| {k} | {bound:.4f} | {extra} | {size:g} | {first:.4f} | {best:.4f} | {best / bound - 1:+.1%} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "rank_psd.md")
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    began = time.perf_counter()
    body = table(learned_heads()[HEAD], RANKS, args.steps)
    text = (
        "# Do larger lower certificates close brackets?\n\n"
        f"Command: `python benchmarks/rank_psd.py` ({os.cpu_count()} CPU cores, "
        f"{time.perf_counter() - began:.0f} s; MiniLM {HEAD}, n = 64, {args.steps} steps). The script says "
        f"what is done.\n\n{body}\n"
    )
    temporary = args.out.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(args.out)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
