"""The certified factor radius against the semidefinite program it replaces.

Run: ``python benchmarks/kappa.py [--skip-sdp]``. The peer is the same quantity (T up to row and
column constants) as an SDP in CVXPY with Clarabel, at n = 48 (about two minutes); larger sizes
have no peer. Both run in this process, on the same threads. Compile time is reported apart.
"""

import argparse
import sys
import time

import jax
import numpy as np

from attnlab.interaction import FactorRadius, factor_radius

SIZES = ((24, 2), (48, 8), (64, 16), (256, 16), (1024, 4), (1024, 16))


def problem(n: int, r: int, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x, y = rng.normal(size=(n, r)), rng.normal(size=(n, r))
    gauge = rng.normal(size=(r, r))
    if kind == "ill-conditioned":
        return (x * 10.0 ** -np.linspace(0, 8, r)) @ gauge, y @ np.linalg.inv(gauge).T
    if kind == "rank-deficient":
        return x[:, : max(1, r // 2)] @ gauge[: max(1, r // 2)], y
    return x, y


def sdp(t: np.ndarray) -> float:
    import cvxpy as cp

    m, n = t.shape
    block = cp.Variable((m + n, m + n), PSD=True)
    level, u, v = cp.Variable(), cp.Variable((m, 1)), cp.Variable((1, n))
    shifted = t + u @ np.ones((1, n)) + np.ones((m, 1)) @ v
    cp.Problem(cp.Minimize(level), [block[:m, m:] == shifted, cp.diag(block) <= level]).solve(
        solver=cp.CLARABEL
    )
    return float(level.value)  # pyright: ignore[reportArgumentType]


def timed(x: np.ndarray, y: np.ndarray) -> tuple[float, FactorRadius]:
    """Median of five calls, and the result."""
    times, result = [], factor_radius(x, y)
    for _ in range(5):
        start = time.perf_counter()
        result = factor_radius(x, y)
        times.append(time.perf_counter() - start)
    return float(np.median(times)), result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip-sdp", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    print("| n | r | T | first call (s) | later calls (s) | certified gap |\n|---|---|---|---|---|---|")
    for n, r in SIZES:
        for kind in ("plain", "ill-conditioned", "rank-deficient"):
            x, y = problem(n, r, kind, rng)
            start = time.perf_counter()
            factor_radius(x, y)
            first = time.perf_counter() - start
            later, result = timed(x, y)
            print(
                f"| {n} | {r} | {kind} | {first:.3f} | {later:.4f} | {result.relative_gap:.1e} |", flush=True
            )
    if not args.skip_sdp:
        x, y = problem(48, 8, "plain", rng)
        fast, bracket = timed(x, y)
        start = time.perf_counter()
        value = sdp(x @ y.T)
        slow = time.perf_counter() - start
        print(
            f"\nSDP at n = 48, r = 8: {slow:.1f} s, value {value:.6f}; here {fast:.4f} s, certified "
            f"[{bracket.lower:.6f}, {bracket.upper:.6f}]. Ratio {slow / fast:.0f}x."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
