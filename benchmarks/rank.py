"""Rank brackets: how tight, against what people use today.

Run: ``python benchmarks/rank.py [--out FILE] [--quick]`` (about 15 minutes on 2 cores; ``--quick``
takes the first 3 heads). Five tables: reference matrices with every bound beside the plain SVD one; the
error profile of 18 MiniLM heads; their brackets at four tolerances; what more search would give where
brackets stay open; and one-dimensional heads, where they close. ``rank_speed.py`` measures time.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from rich.progress import track

import attnlab as al
from attnlab.certify import Certificate
from attnlab.rank import svd_bracket, svd_tail, truncated_svd, two_summing
from attnlab.rank._lower import search_lower
from attnlab.rank._one_dimensional import line
from attnlab.rank._upper import search_upper

HERE = Path(__file__).parent
HEADS = HERE.parent / "tests" / "data" / "minilm_heads.npz"
RANKS = (1, 2, 4, 8, 16, 32)
TOLERANCES = (0.05, 0.1, 0.2, 0.5)


def sphere(d: int, beta: float, n: int = 64) -> np.ndarray:
    """Self-attention of n random points on the sphere (default_rng(0))."""
    x = np.random.default_rng(0).normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(al.rank.attention(x, x, beta))


def learned_heads() -> dict[str, np.ndarray]:
    """18 MiniLM heads, by name."""
    with np.load(HEADS) as data:
        logits = data["logits"].astype(np.float64)
        raw = np.exp(logits - logits.max(-1, keepdims=True))
        return {
            f"layer {la} head {h}": a / a.sum(1, keepdims=True)
            for (la, h), a in zip(data["heads"], raw, strict=True)
        }


def plain_svd(a: np.ndarray, rank: int) -> tuple[float, float]:
    """The bracket on a_{k+1} people use today: singular value tail and truncation error (float64)."""
    s = np.linalg.svd(a, compute_uv=False)
    u, w = truncated_svd(a, rank)
    return float(np.sqrt((s[rank:] ** 2).sum() / len(a))), float(np.abs(a - u @ w).sum(1).max())


def proved(kind: str, rank: int, witness: dict[str, np.ndarray], a: np.ndarray) -> float:
    return Certificate(kind, {"rank": rank, "error": 0.0}, witness, {"attention": a}).verify().bound


def reference_table(heads: dict[str, np.ndarray]) -> str:
    cases = [
        ("sphere d=3 beta=4", sphere(3, 4.0), (8,)),
        ("sphere d=3 beta=16", sphere(3, 16.0), (8, 16, 32)),
        ("sphere d=8 beta=8", sphere(8, 8.0), (32,)),
        ("MiniLM layer 3 head 5", heads["layer 3 head 5"], RANKS),
    ]
    rows = []
    for name, a, ranks in cases:
        profile = al.rank.error_profile(a, ranks)
        for k in ranks:
            i = int(np.flatnonzero(profile.ranks == k)[0])
            low, high = plain_svd(a, k)
            r, p = svd_tail(a)
            tail = proved("rank-lower-psd", k, {"R": r, "P": p}, a)
            r, p = two_summing(a, k)
            summing = proved("rank-lower-psd", k, {"R": r, "P": p}, a)
            lower, upper = profile.lower[i], profile.upper[i]
            rows.append(
                f"| {name} | {k} | {low:.3f} | {tail:.3f} | {summing:.3f} | {lower:.4f} | {upper:.4f} | "
                f"{high:.3f} | {upper / lower:.3f} | {high / low:.1f} |"
            )
    header = (
        "| matrix | k | SVD tail | SVD tail, certified | 2-summing, certified | lower | upper | "
        "truncated SVD | upper/lower | same by SVD |"
    )
    return "\n".join([header, "|" + "---|" * 10, *rows])


def profile_table(heads: dict[str, np.ndarray]) -> str:
    ratios = np.zeros((len(heads), len(RANKS)))
    plain = np.zeros_like(ratios)
    seconds = []
    for h, a in enumerate(track(heads.values(), description="profiles")):
        start = time.perf_counter()
        profile = al.rank.error_profile(a, RANKS)
        seconds.append(time.perf_counter() - start)
        for j, k in enumerate(RANKS):
            i = int(np.flatnonzero(profile.ranks == k)[0])
            ratios[h, j] = profile.upper[i] / profile.lower[i]
            low, high = plain_svd(a, k)
            plain[h, j] = high / low
    lines = ["| k | median upper/lower | largest | median by plain SVD |", "|---|---|---|---|"]
    lines += [
        f"| {k} | {np.median(ratios[:, j]):.3f} | {ratios[:, j].max():.3f} | {np.median(plain[:, j]):.1f} |"
        for j, k in enumerate(RANKS)
    ]
    lines.append(
        f"| all | **{np.median(ratios):.3f}** | **{ratios.max():.3f}** | {np.median(plain):.1f} |\n\n"
        f"Seconds per head (six ranks): first {seconds[0]:.1f} (with compilation), later "
        f"median {np.median(seconds[1:]):.1f}."
    )
    return "\n".join(lines)


def bracket_table(heads: dict[str, np.ndarray]) -> str:
    gaps, seconds, lines = [], [], []
    for name, a in track(heads.items(), description="brackets"):
        start = time.perf_counter()
        found = al.rank.brackets(a, TOLERANCES)
        seconds.append(time.perf_counter() - start)
        gaps.append([b.upper - b.lower for b in found])
        svd = [str(list(svd_bracket(a, e))) for e in TOLERANCES]
        cells = [f"[{b.lower}, {b.upper}]" for b in found]
        lines.append(f"| {name} | " + " | ".join(cells + svd) + f" | {seconds[-1]:.1f} |")
    gap = np.array(gaps)
    header = [f"eps={e:g}" for e in TOLERANCES] + [f"SVD, eps={e:g}" for e in TOLERANCES]
    share = "; ".join(
        f"eps={e:g}: {np.mean(gap[:, j] == 0):.0%} closed, {np.mean(gap[:, j] <= 2):.0%} within 2"
        for j, e in enumerate(TOLERANCES)
    )
    return "\n".join(
        [
            "| head | " + " | ".join(header) + " | seconds |",
            "|" + "---|" * (len(header) + 2),
            *lines,
            "",
            f"Closed: **{np.mean(gap == 0):.0%}**; within 2 ranks: **{np.mean(gap <= 2):.0%}** ({share}). "
            f"Seconds per head: first {seconds[0]:.1f}, later median {np.median(seconds[1:]):.1f}.",
        ]
    )


def saturation_table(a: np.ndarray) -> str:
    """Ends over 24 starts each, at two lengths of search: what more restarts or steps would give."""
    lines = [
        "| k | steps | lower: best | median | worst | upper: best | median | worst | best ratio |",
        "|" + "---|" * 9,
    ]
    lanes = np.arange(24)
    for k in (8, 16, 32):
        for steps in (2500, 6000):
            common = (np.full(len(lanes), k), lanes, steps, np.float32, np.random.default_rng(0), 33)
            pairs, _ = search_lower(a, *common)
            low = np.array([1 / np.abs(c).sum(1).max() for _, c in pairs])
            pairs, _ = search_upper(a, *common)
            high = np.array([np.abs(a - u @ w).sum(1).max() for u, w in pairs])
            cells = [low.max(), np.median(low), low.min(), high.min(), np.median(high), high.max()]
            numbers = " | ".join(f"{x:.4f}" for x in cells)
            lines.append(f"| {k} | {steps} | {numbers} | {high.min() / low.max():.3f} |")
    lines.append(
        "\nLower and upper values of unrelated starts, and of longer runs: where the best ratio stays put, "
        "the gap is likely, not provably, between the Bernstein number (the best of this certificate) and "
        "the error. `rank_psd.md` tries a larger certificate."
    )
    return "\n".join(lines)


def line_table() -> str:
    """Heads with a one-dimensional interaction: every rank whose error is at least 1e-3."""
    lines = ["| n | beta | ranks with error >= 1e-3 | largest upper/lower - 1 | seconds |", "|" + "---|" * 5]
    for n in (32, 128):
        for beta in (1, 2, 4, 8, 16, 32, 64, 128):
            rng = np.random.default_rng(0)
            q, k = np.sort(rng.uniform(-1, 1, (2, n)), axis=1)
            a = np.asarray(al.rank.attention(q[:, None], k[:, None], float(beta)))
            start = time.perf_counter()
            found = line(a)
            assert found is not None
            gaps: list[float] = []
            for rank in range(1, n):
                lower, upper = found.solve(rank)
                if lower is None or upper is None:
                    break
                high = proved("rank-upper", rank, upper, a)
                if high < 1e-3:
                    break
                gaps.append(high / proved("rank-lower-1d", rank, lower, a) - 1)
            seconds = time.perf_counter() - start
            lines.append(f"| {n} | {beta} | 1 to {len(gaps)} | {max(gaps):.1e} | {seconds:.1f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "rank.md")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    heads = learned_heads()
    some = dict(list(heads.items())[:3]) if args.quick else heads
    parts: list[tuple[str, Callable[[], str]]] = [
        ("Reference matrices (n = 64)", lambda: reference_table(heads)),
        (f"Error profiles of {len(some)} MiniLM heads", lambda: profile_table(some)),
        (f"Brackets on r_eps of {len(some)} MiniLM heads", lambda: bracket_table(some)),
        (
            "Why brackets stay open: layer 0 head 0 from 24 starts (estimates)",
            lambda: saturation_table(heads["layer 0 head 0"]),
        ),
        ("One-dimensional heads", line_table),
    ]
    text = (
        "# Rank brackets: quality\n\n"
        f"Command: `python benchmarks/rank.py` ({os.cpu_count()} CPU cores, float32 search, "
        f"jax {jax.__version__}, "
        'effort "normal" unless said). Lower and upper are certified; "SVD" columns are plain float64.\n'
    )
    for title, make in parts:
        text += f"\n## {title}\n\n{make()}\n"
        print(f"{title}: done", file=sys.stderr)
    temporary = args.out.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(args.out)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
