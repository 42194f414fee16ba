"""Fits of W_3: time of the lane search and of whole fits, and errors against multi-start BFGS and OMP.

Run: ``python benchmarks/fit.py > benchmarks/results/fit.md``. The peers run in this process, on the same
model, the same points and, for BFGS, for the time that one ``fit`` took: scipy.optimize with analytic
gradients, on the p-norm for p = 2, 8, 32 in turn, from the same starts in the same order. OMP picks a
subset of the eight product atoms. Errors are certified sup-errors on the box. Compile time apart.
"""

import argparse
import os
import sys
import time

import jax
import numpy as np
from scipy.optimize import minimize

from attnlab.fusion import Box, fit, fit_many, sup_error
from attnlab.fusion._distill import select_atoms
from attnlab.fusion._fit import NODES
from attnlab.fusion._fit_search import _lane_of, search
from attnlab.fusion._fit_starts import make_starts
from attnlab.fusion._function import Function, head_values, softmax
from attnlab.fusion._polish import Atoms, jacobian
from attnlab.heads import Head, sigmoid_sum


def nodes(radius: float, d: int) -> np.ndarray:
    """The points of the search: Chebyshev nodes."""
    axis = radius * np.cos(np.pi * np.arange(NODES[d]) / (NODES[d] - 1))
    return np.stack(np.meshgrid(*[axis] * d, indexing="ij"), -1).reshape(-1, d)


def bfgs(m: int, radius: float, seconds: float, seed: int) -> tuple[Atoms, int]:
    """Multi-start BFGS until the time is used up: the best head at the points, and starts finished."""
    d, box = 3, Box(radius, 3)
    target, points = Function(sigmoid_sum(d), box), nodes(radius, d)
    wanted = target(points)
    lanes, _ = make_starts(target, box, [m], 4096, m, np.random.default_rng(seed))

    def unpack(x: np.ndarray) -> Atoms:
        table = x.reshape(m, d + 2)
        return table[:, :d], table[:, d + 1 :], table[:, d]

    def objective(x: np.ndarray, p: float) -> tuple[float, np.ndarray]:
        error = (head_values(*unpack(x), points) - wanted)[:, 0]
        size = np.abs(error)
        top = size.max() + 1e-300
        ratio = (size / top) ** (p - 1)
        mean = np.mean((size / top) ** p)
        slope = jacobian(unpack(x), points).T @ (ratio * np.sign(error)) / (top * len(error) * mean)
        return float(np.log(top) + np.log(mean) / p), slope

    begin, best, done = time.perf_counter(), (np.inf, None), 0
    while time.perf_counter() - begin < seconds:
        keys, logs = lanes.keys[done], lanes.logs[done]
        values = np.linalg.lstsq(softmax(keys, logs, points), wanted, rcond=1e-10)[0]
        x = np.concatenate([keys, logs[:, None], values], 1).ravel()
        for p in (2.0, 8.0, 32.0):
            left = seconds - (time.perf_counter() - begin)
            if left <= 0:
                break
            x = minimize(objective, x, (p,), jac=True, method="BFGS", options={"maxiter": 200}).x
        error = float(np.abs(head_values(*unpack(x), points) - wanted).max())
        if error < best[0]:
            best = (error, unpack(x))
        done += 1
    assert best[1] is not None
    return best[1], done


def certified(atoms: Atoms, box: Box) -> float:
    keys, values, logs = atoms
    return sup_error(sigmoid_sum(3), Head(keys, values[:, 0], logs), box, 1e-3).hi


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", default="6:2,7:4", help="atoms:radius pairs for the comparison")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("# Fits of W_3\n\nMade by `python benchmarks/fit.py > benchmarks/results/fit.md` on")
    print(f"{os.cpu_count()} CPU cores (shared with other work), jax {jax.__version__}.\n")
    lane_scaling()
    whole_run()
    comparison([tuple(map(float, c.split(":"))) for c in args.cells.split(",")])
    return 0


def lane_scaling() -> None:
    box = Box(4.0, 3)
    target, points = Function(sigmoid_sum(3), box), nodes(4.0, 3)
    wanted = target(points)
    print("## Lane search, 60 steps, 1,331 points, up to 8 atoms\n")
    print("| lanes | seconds | lanes per second |\n|---|---|---|")
    starts = lambda n: make_starts(target, box, list(range(1, 9)), n, 8, np.random.default_rng(0))[0]
    begin = time.perf_counter()
    search(starts(4), points, wanted, 1)
    compile_seconds = time.perf_counter() - begin
    for lanes_wanted in (32, 128, 512, 1024):
        lanes = starts(lanes_wanted // 8)
        begin = time.perf_counter()
        search(lanes, points, wanted, 60)
        seconds = time.perf_counter() - begin
        print(f"| {lanes_wanted} | {seconds:.1f} | {lanes_wanted / seconds:.0f} |", flush=True)
    print(f"\nCompile time: {compile_seconds:.1f} s.\n")
    memory(points, wanted)


def memory(points: np.ndarray, wanted: np.ndarray) -> None:
    """Predicted device memory of a chunk (three Jacobians per lane) beside what XLA reports."""
    (n, d), m = points.shape, 8
    print("| lanes in a chunk | predicted MB | XLA MB |\n|---|---|---|")
    shape = lambda *s: jax.ShapeDtypeStruct(s, "float32")
    data = (shape(*points.shape), shape(*wanted.shape), jax.ShapeDtypeStruct((), "int32"))
    for lanes in (4, 64):
        start = (
            shape(lanes, m, d),
            shape(lanes, m),
            shape(lanes, m, 1),
            jax.ShapeDtypeStruct((lanes, m), bool),
        )
        program = jax.jit(jax.vmap(_lane_of, in_axes=(0, None, None, None)))
        report = program.lower(start, *data).compile().memory_analysis()
        used = f"{report.temp_size_in_bytes / 1e6:.1f}" if report else "not reported"
        print(f"| {lanes} | {3 * lanes * n * m * (d + 2) * 4 / 1e6:.1f} | {used} |")
    print(flush=True)


def whole_run() -> None:
    begin = time.perf_counter()
    fits = fit_many(sigmoid_sum(3), list(range(1, 9)), Box(4.0, 3), key=0, starts=64, polished=1)
    seconds = time.perf_counter() - begin
    print(f"## 64 starts x 8 counts, d = 3, R = 4, polish included: {seconds:.1f} s\n")
    print("| atoms | estimate | certified |\n|---|---|---|")
    for f in fits:
        interval = sup_error(sigmoid_sum(3), f.head, Box(4.0, 3), 1e-3)
        print(f"| {f.num_atoms} | {f.sup_error_estimate:.6f} | [{interval.lo:.6f}, {interval.hi:.6f}] |")
    print(flush=True)


def comparison(cells: list[tuple[float, ...]]) -> None:
    print("## Against peers (certified sup-error, upper end)\n")
    print("| atoms | R | fit | seconds | BFGS | its starts | BFGS / fit | OMP | OMP / fit |")
    print("|---|---|---|---|---|---|---|---|---|")
    for atoms, radius in cells:
        m, box = int(atoms), Box(radius, 3)
        fit(sigmoid_sum(3), m, box, key=1, starts=8)  # compile
        begin = time.perf_counter()
        ours = fit(sigmoid_sum(3), m, box, key=0, starts=64)
        seconds = time.perf_counter() - begin
        error = sup_error(sigmoid_sum(3), ours.head, box, 1e-3).hi
        head, starts = bfgs(m, radius, seconds, 0)
        theirs = certified(head, box)
        subset = certified(select_atoms(sigmoid_sum(3), [m], nodes(radius, 3)).heads[0], box)
        print(
            f"| {m} | {radius:g} | {error:.6f} | {seconds:.1f} | {theirs:.6f} | {starts} "
            f"| {theirs / error:.3f} | {subset:.6f} | {subset / error:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
