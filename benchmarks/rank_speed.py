"""The cost of rank brackets, and alternating linear programmes as the peer.

Run: ``python benchmarks/rank_speed.py [--limit SECONDS]`` (about 5 minutes on 2 cores). Measured: brackets
at four tolerances for a first head (with compilation) and for a second one of the same shape, counting
compilations; verification of their certificates; and the time to reach the upper error at which
alternating exact linear programmes (HiGHS, same start) stop. Everything runs in this process.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import jax
import numpy as np
from rank import TOLERANCES, learned_heads
from scipy.optimize import linprog
from scipy.sparse import block_array, coo_array, eye_array, kron

import attnlab as al
from attnlab.rank import _descend, truncated_svd
from attnlab.rank._upper import search_upper

HERE = Path(__file__).parent
STEPS = (100, 200, 400, 800, 1600, 3200)


def cost_table(first: np.ndarray, second: np.ndarray) -> str:
    traces = []
    original = _descend._lane

    def counting(*arguments):
        traces.append(1)
        return original(*arguments)

    _descend._lane = counting
    lines = ["| | seconds | compilations |", "|---|---|---|"]
    found = []
    for name, a in (("first head, four eps", first), ("second head of the same shape", second)):
        before, start = len(traces), time.perf_counter()
        found = al.rank.brackets(a, TOLERANCES)
        lines.append(f"| {name} | {time.perf_counter() - start:.1f} | {len(traces) - before} |")
    _descend._lane = original
    certificates = [c for b in found for c in (b.lower_certificate, b.upper_certificate) if c is not None]
    times = []
    for certificate in certificates:
        start = time.perf_counter()
        assert certificate.verify()
        times.append(time.perf_counter() - start)
    lines.append(f"| verification of a certificate (slowest of {len(times)}) | {max(times):.4f} | |")
    return "\n".join(lines)


def alternating(a: np.ndarray, rank: int, limit: float) -> tuple[float, float]:
    """Alternating exact LPs (HiGHS) from the truncated SVD: (error reached, seconds).

    For fixed W each row is an l1 regression; for fixed U all of W is one programme that minimises the
    largest row error. Stops when an iteration gains less than
    1e-4, or after ``limit`` seconds (checked between programmes).
    """
    m, n = a.shape
    start = time.perf_counter()
    u, w = truncated_svd(a, rank)
    error = np.abs(a - u @ w).sum(1).max()
    while time.perf_counter() - start < limit:
        before = error
        system = np.hstack([w.T, -w.T, np.eye(n), -np.eye(n)])
        cost = np.concatenate([np.zeros(2 * rank), np.ones(2 * n)])
        for i in range(m):
            x = linprog(cost, A_eq=system, b_eq=a[i], bounds=(0, None), method="highs").x
            u[i] = x[:rank] - x[rank : 2 * rank]
        # Variables: W (rank n, free), |E| bounds S (m n), t.
        design = kron(u, eye_array(n))
        ones = eye_array(m * n)
        sums = kron(eye_array(m), coo_array(np.ones((1, n))))
        last = coo_array(-np.ones((m, 1)))
        constraints = block_array(
            [[design, -ones, None], [-design, -ones, None], [None, sums, last]], format="csc"
        )
        limits = np.concatenate([a.ravel(), -a.ravel(), np.zeros(m)])
        cost = np.zeros(rank * n + m * n + 1)
        cost[-1] = 1
        bounds = [(None, None)] * (rank * n) + [(0, None)] * (m * n + 1)
        left = max(limit - (time.perf_counter() - start), 1.0)
        options = {"time_limit": left}
        answer = linprog(cost, constraints, limits, bounds=bounds, method="highs-ipm", options=options)
        if answer.x is None:
            break
        w = answer.x[: rank * n].reshape(rank, n)
        error = np.abs(a - u @ w).sum(1).max()
        if error > before * (1 - 1e-4):
            break
    return float(error), time.perf_counter() - start


def peer_table(a: np.ndarray, limit: float) -> str:
    lines = [
        "| k | HiGHS alternation | seconds | attnlab upper | seconds | time ratio |",
        "|---|---|---|---|---|---|",
    ]
    lanes = np.arange(8)

    def mine(k: int, steps: int) -> tuple[float, float]:
        start = time.perf_counter()
        ranks = np.full(len(lanes), k)
        found, _ = search_upper(a, ranks, lanes, steps, np.float64, np.random.default_rng(0), 33)
        error = min(np.abs(a - u @ w).sum(1).max() for u, w in found)
        return float(error), time.perf_counter() - start

    mine(4, 1)  # compile
    for k in (4, 8, 16):
        error, peer = alternating(a, k, limit)
        reached, seconds = next(
            (r for r in (mine(k, steps) for steps in STEPS) if r[0] <= error), (float("nan"), float("nan"))
        )
        lines.append(
            f"| {k} | {error:.4f} | {peer:.1f} | {reached:.4f} | {seconds:.2f} | {peer / seconds:.0f}x |"
        )
    lines.append(
        f"\nThe peer stops when an iteration gains less than 1e-4 or after {limit:g} s. attnlab runs "
        f"{len(lanes)} starts with the fewest steps out of {STEPS} that reach the peer's error; compiled "
        "before."
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for the peer, per rank")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    heads = learned_heads()
    first, second = heads["layer 3 head 5"], heads["layer 3 head 0"]
    text = (
        "# Rank brackets: cost\n\n"
        f"Command: `python benchmarks/rank_speed.py` ({os.cpu_count()} CPU cores, float32 search, "
        f'jax {jax.__version__}, MiniLM layer 3 heads 5 and 0, n = 64, effort "normal").\n\n'
        f"{cost_table(first, second)}\n\n"
        f"## Time to equal upper error, layer 3 head 5\n\n{peer_table(first, args.limit)}\n"
    )
    out = HERE / "results" / "rank_speed.md"
    temporary = out.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(out)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
