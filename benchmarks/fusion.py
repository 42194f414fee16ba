"""Exact fusion against raw polynomial arithmetic on the same heads.

Run: ``python benchmarks/fusion.py [--skip-sympy]``. The peer does the algebra alone: plain product of all
heads, gcd of numerator and denominator, division, in python-flint. ``fuse`` also finds lower bounds, writes
both certificates and has the checker confirm them. SymPy does the algebra for W_10. All in this process.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import flint

from attnlab.certify._fusion import add, ratios, value_scale
from attnlab.fusion import ExactHead, exact_sigmoid_sum, fuse


def steps(*sizes: int) -> list[ExactHead]:
    return [ExactHead([[0], [a]], [1, 1], [0, 1]) for a in sizes]


def generic(number: int, atoms: int) -> list[ExactHead]:
    """Heads with independent key differences."""
    dim, heads = number * (atoms - 1), []
    for h in range(number):
        unit = [[int(i == h * (atoms - 1) + k) for i in range(dim)] for k in range(atoms - 1)]
        heads.append(ExactHead([[0] * dim, *unit], range_list(1, atoms), range_list(h, h + atoms - 1)))
    return heads


def range_list(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


CASES: list[tuple[str, list[ExactHead]]] = [
    ("W_10", exact_sigmoid_sum(10)),
    ("W_12", exact_sigmoid_sum(12)),
    ("W_14", exact_sigmoid_sum(14)),
    ("W_16", exact_sigmoid_sum(16)),
    ("4 generic heads of 3", generic(4, 3)),
    ("sum sigma(2^j q), j < 10", steps(*[2**j for j in range(10)])),
    ("sum sigma(a q), a = 1, 2, 3", steps(1, 2, 3)),
]


def raw(heads: Sequence[ExactHead]) -> Any:
    """Plain product, gcd and division in python-flint."""
    data = [h.data() for h in heads]
    total = add(ratios(data, value_scale(data)))
    (numerator,) = total.numerators
    factor = numerator.gcd(total.denominator)
    return numerator / factor, total.denominator / factor


def sympy_sum(d: int) -> int:
    """The same algebra for W_d in SymPy's sparse polynomial ring; number of terms."""
    from sympy import ZZ
    from sympy.polys.rings import ring

    _, *x = ring([f"x{i}" for i in range(d)], ZZ)
    parts = [(v, 1 + v) for v in x]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [(a * q + b * p, p * q) for (a, p), (b, q) in pairs] + parts[len(parts) // 2 * 2 :]
    ((numerator, denominator),) = parts
    return len(numerator.cancel(denominator)[1])


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Least CPU time of some calls (everything here runs on one thread), and the result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip-sympy", action="store_true")
    args = parser.parse_args()
    print(f"python-flint {flint.__version__}, FLINT {flint.__FLINT_VERSION__}; CPU seconds, one thread\n")
    print("| heads | certified atoms | raw FLINT (s) | fuse (s) | ratio | verify both (s) |")
    print("|---|---|---|---|---|---|")
    for name, heads in CASES:
        peer, _ = timed(lambda heads=heads: raw(heads), 3)
        mine, result = timed(lambda heads=heads: fuse(heads), 1 if name == "W_16" else 3)
        check, verdict = timed(result.certificate.verify, 1)
        size = str(result.lower) if result.closed else f"{result.lower}..{result.upper}"
        cells = f"{peer:.4f} | {mine:.3f} | {mine / peer:.0f}x | {check:.3f}"
        print(f"| {name} | {size if verdict.holds else 'CHECK FAILED'} | {cells} |", flush=True)
    print(
        f"\nPeak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB."
    )
    if not args.skip_sympy:
        seconds, terms = timed(lambda: sympy_sum(10), 1)
        print(f"SymPy, W_10, product and cancellation alone: {seconds:.3f} s ({terms} terms).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
