"""Streamed rank brackets against the matrix they never form: time, memory and quality as n grows.

Run: ``python benchmarks/streamed.py --points points.jsonl`` (about 10 minutes on 2 idle cores). Subjects are
n random points on the sphere of R^3, beta = 32, eps = 0.1. Every point is a process of its own, so that
its peak memory is its own; finished points are kept in ``--points`` and not run again, and
``--only bracket:1024`` runs a single one. Peers: NumPy's full SVD of the formed matrix (SVD tail
below, truncated SVD above, both by bisection), where it fits, and the closed form of the continuum. Then
given factors are verified at n = 100,000, where the matrix would take 80 GB, and ``memory_limit`` is held
against what the search really takes.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SIZES = (1024, 2048, 4096, 8192, 16384)
PEER_SIZES = (1024, 2048, 4096)
VERIFY, RANK_ROOT = 100_000, 16  # k = 256: all harmonics of degree below 16
LIMITS = {4096: 400, 16384: 1000}  # MB
BETA, EPS, D = 32.0, 0.1, 3


def sphere(n: int) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(n, D))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def bracket_point(n: int) -> dict:
    from attnlab.rank import FactoredAttention, bracket

    points = sphere(n)
    before = peak_mb()
    seconds, found = timed(lambda: bracket(FactoredAttention(points, points, BETA), EPS))
    result = {
        "seconds": seconds,
        "compile_seconds": found.cost["compile_seconds"],
        "before_mb": before,
        "peak_mb": peak_mb(),
        "lower": found.lower,
        "upper": found.upper,
        "upper_error": found.upper_certificate.claim["error"],
    }
    for end, certificate in (("lower", found.lower_certificate), ("upper", found.upper_certificate)):
        assert certificate is not None
        result[f"verify_{end}_seconds"], verdict = timed(certificate.verify)
        result[f"{end}_holds"] = bool(verdict)
        result[f"{end}_bound"] = verdict.bound
    return result


def svd_point(n: int) -> dict:
    """The bracket of the singular values, in plain float64, of the formed matrix."""
    x = sphere(n).astype(np.float64)

    def work() -> tuple[int, int]:
        a = np.exp(BETA * (x @ x.T - 1))
        a /= a.sum(1, keepdims=True)
        u, s, vt = np.linalg.svd(a)
        tail = np.sqrt(np.append(np.cumsum((s**2)[::-1])[::-1], 0.0) / n)
        low, high = 0, n
        while high - low > 1:
            k = (low + high) // 2
            error = np.abs(a - (u[:, :k] * s[:k]) @ vt[:k]).sum(1).max()
            low, high = (low, k) if error <= EPS else (k, high)
        return int(np.argmax(tail <= EPS)), high

    seconds, (lower, upper) = timed(work)
    return {"seconds": seconds, "peak_mb": peak_mb(), "lower": lower, "upper": upper}


def verify_point(n: int) -> dict:
    """Verify factors of rank 256 made of spherical harmonics: the continuum's expansion, on n points."""
    from scipy.special import ive, sph_harm_y

    from attnlab.certify import Certificate

    x = sphere(n).astype(np.float64)
    polar, azimuth = np.arccos(np.clip(x[:, 2], -1, 1)), np.arctan2(x[:, 1], x[:, 0])
    features, values = [], []
    for degree in range(RANK_ROOT):
        eigenvalue = ive(degree + 0.5, BETA) / ive(0.5, BETA)
        for order in range(degree + 1):
            y = sph_harm_y(degree, order, polar, azimuth) * np.sqrt(4 * np.pi * (2 if order else 1))
            parts = (y.real, y.imag) if order else (y.real,)
            features += [part.astype(np.float32) for part in parts]
            values += [eigenvalue] * len(parts)
    y = np.stack(features, 1)
    del features
    subject = {"q": x, "k": x, "beta": np.array(BETA), "log_weights": np.zeros(n)}
    witness = {"U": y * np.array(values, np.float32), "W": np.ascontiguousarray(y.T) / np.float32(n)}
    before = peak_mb()
    certificate = Certificate("rank-upper", {"rank": y.shape[1], "error": 1.0}, witness, subject)
    seconds, verdict = timed(certificate.verify)
    return {
        "seconds": seconds,
        "before_mb": before,
        "peak_mb": peak_mb(),
        "rank": y.shape[1],
        "bound": verdict.bound,
        "holds": bool(verdict),
    }


def limit_point(n: int) -> dict:
    """Memory a search under a limit takes, beyond that of a process that has compiled and run a small one."""
    from attnlab.rank import FactoredAttention, bracket

    warm, points = sphere(600), sphere(n)
    bracket(FactoredAttention(warm, warm, BETA), EPS, effort="fast", memory_limit=2e8)
    before = peak_mb()
    subject = FactoredAttention(points, points, BETA)
    seconds, found = timed(lambda: bracket(subject, EPS, effort="fast", memory_limit=LIMITS[n] * 1e6))
    taken = {"taken_mb": peak_mb() - before, "limit_mb": LIMITS[n]}
    return {"seconds": seconds, "lower": found.lower, "upper": found.upper, **taken}


KINDS = {"limit": limit_point, "bracket": bracket_point, "svd": svd_point, "verify": verify_point}
POINTS = [
    *((kind, n) for n in SIZES for kind in ("bracket", "svd") if kind == "bracket" or n in PEER_SIZES),
    ("verify", VERIFY),
    *(("limit", n) for n in LIMITS),
]


def report(points: dict[tuple[str, int], dict]) -> str:
    from attnlab.laws import sphere_bracket

    closed = sphere_bracket(D, BETA, EPS)
    lines = [
        "# Streamed rank brackets",
        "",
        "Command: `python benchmarks/streamed.py --points points.jsonl` "
        f"({os.cpu_count()} CPU cores; Python "
        f"{platform.python_version()}, float32 search, "
        f'effort "normal"). n random points on the sphere of R^{D}, beta = {BETA:g}, eps = {EPS:g}; '
        f"the closed form of the continuum is [{closed.lower}, {closed.upper}].",
        "",
        "| n | certified bracket | lower / closed | upper / closed | seconds (compiling) | peak MB "
        "(before the search) | verifying lower, upper (s) | matrix alone, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    sizes = [n for n in SIZES if ("bracket", n) in points]
    for n in sizes:
        p = points["bracket", n]
        held = "" if p["lower_holds"] and p["upper_holds"] else " NOT VERIFIED"
        lines.append(
            f"| {n} | [{p['lower']}, {p['upper']}]{held} | {p['lower'] / closed.lower:.3f} | "
            f"{p['upper'] / closed.upper:.3f} | {p['seconds']:.0f} ({p['compile_seconds']:.0f}) | "
            f"{p['peak_mb']:.0f} ({p['before_mb']:.0f}) | "
            f"{p['verify_lower_seconds']:.1f}, {p['verify_upper_seconds']:.1f} | {8 * n * n / 2**20:.0f} |"
        )
    if len(sizes) > 1:
        slope = lambda y: np.polyfit(np.log(sizes), np.log([y(points["bracket", n]) for n in sizes]), 1)[0]
        lines += [
            "",
            f"Fitted exponents in n: time {slope(lambda p: p['seconds']):.2f} (without compilation "
            f"{slope(lambda p: p['seconds'] - p['compile_seconds']):.2f}), peak memory "
            f"{slope(lambda p: p['peak_mb']):.2f} (above what was there before the search "
            f"{slope(lambda p: p['peak_mb'] - p['before_mb']):.2f}), verification "
            f"{slope(lambda p: p['verify_lower_seconds'] + p['verify_upper_seconds']):.2f}. "
            "Large matrices get fewer passes: half the budget from n = 8,192 on, four times at n = 1,024.",
        ]
    peers = [n for n in sizes if ("svd", n) in points]
    if peers:
        lines += [
            "",
            "## Peer: NumPy's full SVD of the formed matrix (not certified)",
            "",
            "| n | SVD bracket | width | attnlab width | seconds | time, attnlab / SVD | peak MB | memory |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for n in peers:
            p, ours = points["svd", n], points["bracket", n]
            lines.append(
                f"| {n} | [{p['lower']}, {p['upper']}] | {p['upper'] - p['lower']} | "
                f"{ours['upper'] - ours['lower']} | {p['seconds']:.0f} | "
                f"{ours['seconds'] / p['seconds']:.1f} | "
                f"{p['peak_mb']:.0f} | {ours['peak_mb'] / p['peak_mb']:.2f} |"
            )
    if ("verify", VERIFY) in points:
        p = points["verify", VERIFY]
        lines += [
            "",
            "## Verification of given factors",
            "",
            f"n = {VERIFY:,}, k = {p['rank']} (spherical harmonics of degree below {RANK_ROOT} with the "
            f"continuum's eigenvalues): certified largest row error {p['bound']:.4f}, in "
            f"{p['seconds']:.0f} s with {p['peak_mb']:.0f} MB at the peak ({p['before_mb']:.0f} MB before, "
            f"with the factors). The matrix would take {8 * VERIFY**2 / 1e9:.0f} GB.",
        ]
    limits = [n for n in LIMITS if ("limit", n) in points]
    if limits:
        lines += [
            "",
            "## Memory limits",
            "",
            'Effort "fast". Memory taken is beyond that of a process which has compiled and run a bracket of '
            "600 points.",
            "",
            "| n | memory_limit, MB | taken, MB | bracket | seconds |",
            "|---|---|---|---|---|",
        ]
        for p in (points["limit", n] for n in limits):
            lines.append(
                f"| {p['n']} | {p['limit_mb']} | {p['taken_mb']:.0f} | [{p['lower']}, {p['upper']}] | "
                f"{p['seconds']:.0f} |"
            )
    missing = [f"{kind}:{n}" for kind, n in POINTS if (kind, n) not in points]
    if missing:
        lines += ["", f"Not run here: {', '.join(missing)} (the same command runs what is missing)."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=Path, required=True, help="finished points, one JSON object a line")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "streamed.md")
    parser.add_argument("--only", help="run this one point, e.g. bracket:1024")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        kind, n = args.only.split(":")
        print(json.dumps(KINDS[kind](int(n))))
        return 0
    stored = args.points.read_text().splitlines() if args.points.exists() else []
    points = {(p["kind"], p["n"]): p for p in map(json.loads, stored)}
    for kind, n in POINTS:
        if (kind, n) in points or args.only not in (None, f"{kind}:{n}"):
            continue
        print(f"{kind} n={n}", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--child", "--points", args.points, "--only", f"{kind}:{n}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        points[kind, n] = {"kind": kind, "n": n, **json.loads(done.stdout.splitlines()[-1])}
        with args.points.open("a") as file:
            file.write(json.dumps(points[kind, n]) + "\n")
    text = report(points)
    temporary = args.out.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, args.out)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
