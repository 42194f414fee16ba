"""A census of exact fusion: the least number of atoms of a single head equal to a sum of heads.

Claims ([M] and its consequences): W_d needs 2^d atoms although it has 2d head-atom terms; vertices of a
Newton polytope bound the number from below, the plain product from above. Measured for families of sums:
where the bracket closes, where fusion beats the product, and where vertices alone are not enough. A second
table hunts for sums of sigmoids whose minimum lies below the plain product over distinct denominators.
"""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import _lab
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from rich.progress import track

from attnlab.certify._fusion import ratios, value_scale
from attnlab.fusion import ExactHead, exact_sigmoid_sum, fuse

Case = tuple[str, str, list[ExactHead]]
SECONDS = {"smoke": 0.5, "small": 50.0, "paper": 120.0}  # time limit per sum
HUNT = {"smoke": 3, "small": 60, "paper": 1000}  # sums of 2, of 3 and of 4 sigmoids in the hunt


def main(argv: list[str] | None = None) -> int:
    run = _lab.start("fusion_census", __doc__ or "", argv=argv)
    rows = [measure(case, SECONDS[run.preset]) for case in progress(list(families(run)))]
    found = [measure(case, 1.0) for case in progress(list(hunt(run)))]
    below = [row for row in found if row["upper"] < row["distinct product"]]
    again = {r["sum"] for r in [r for r in below if not r["closed"]][:12]}
    longer = {
        c[1]: measure(c, SECONDS[run.preset]) for c in progress([c for c in hunt(run) if c[1] in again])
    }
    found, below = ([longer.get(row["sum"], row) for row in part] for part in (found, below))
    closed = sorted(
        {row["family"] for row in rows if all(r["closed"] for r in rows if r["family"] == row["family"])}
    )
    known = all(row["lower"] <= row["known"] <= row["upper"] for row in rows if row["known"])
    figure, axes = plt.subplots(1, 2, figsize=(12, 5))
    draw_ratios(rows, axes[0])
    draw_hunt(found, axes[1])
    n_closed = sum(r["closed"] for r in rows)
    n_beaten = sum(r["upper"] < r["product"] for r in rows)
    n_not_vertices = sum(r["vertices"] < r["lower"] for r in rows)
    n_families = len({r["family"] for r in rows})
    report = f"""# Census of exact fusion

**Claim.** A sum of heads can be one head, but sometimes only a much larger one; vertices and the plain
product bound its size from both sides, and integer certificates close most of the gap.

**Measured.** {len(rows)} sums in {n_families} families; both ends of every bracket passed the checker.
"distinct" is the number of atoms of the plain product over distinct denominators.

{table(rows)}

**Closed.** {n_closed} of {len(rows)} brackets are closed; families in which all are:
{", ".join(closed)}.

**Fusion beats the product** (all denominators multiplied out) in {n_beaten} sums, and
**vertices alone do not reach the minimum** in {n_not_vertices}.

## Below the plain product over distinct denominators

Hunt over {len(found)} sums sum_j c_j sigma(a_j q) with different a_j <= 6 and c_j in +-1, +-2, +-3:
{len(below)} have a minimum below the product over distinct denominators. Often poles cancel.
But the poles of sum over a | n of c_a sigma(a q) are all 2n-th roots of unity and simple, so the uniform
denominator 1 + x + ... + x^(2n-1) always carries the sum, with 2n atoms, while the product can have s(n) + 1,
s(n) the sum of the divisors of n. That is more for n = 6, and for perfect and abundant n in general.

{table(below[:25])}

**Verdict.** {len(closed)} families closed; every known minimum lies in its bracket: {known}; sums below the
product over distinct denominators exist: {bool(below)}."""
    run.save([*rows, *found], figure, report)
    return 0 if known else 1


def families(run: _lab.Run) -> Iterator[Case]:
    """Every sum of the census as (family, name, heads)."""
    top = {"smoke": 0, "small": 1, "paper": 2}[run.preset]
    for sizes in ((1, 1), (1, 1, 1, 1), (1, 2), (1, 3), (2, 3), (1, 1, 2), (1, 3, 5), (1, 3, 4, 5)):
        yield "sigmoid lists", _list(sizes), steps(*sizes)
    for h in range(2, 4 + top):
        yield "arithmetic chains 1..H", _list(range(1, h + 1)), steps(*range(1, h + 1))
    for d in range(2, (6, 9, 11)[top]):
        yield "dyadic chains", f"2^j, j < {d}", steps(*[2**j for j in range(d)])
    for h in range(2, 4 + top):
        yield "odd chains", _list(range(1, 2 * h, 2)), steps(*range(1, 2 * h, 2))
    for h in range(2, 4 + top // 2):
        yield "triadic chains", _list([3**j for j in range(h)]), steps(*[3**j for j in range(h)])
    for d in range(2, (6, 9, 13)[top]):
        yield "shifts", f"{d} shifts", shifts(d)
    for d in range(1, (5, 11, 15)[top]):
        yield "sigmoid sums W_d", f"W_{d}", exact_sigmoid_sum(d)
    for n in (4, 6, 8, *((9, 10) if top else ()), *((12,) if top > 1 else ())):
        yield "divisors of n", f"n = {n}", steps(*[a for a in range(1, n + 1) if n % a == 0])
    for n in range(2, 6 + 2 * top):
        yield "binomial weights", f"(1 + x)^{n}", binomial(n)
    for radices in ((2, 3), (3, 2), (2, 2, 3), (3, 3), (2, 3, 4)):
        yield "mixed radix", _list(radices), uniform(radices)
    e = [(1, 0), (0, 1)]
    for name, directions in {
        "e1, e1, e2": [*e, (1, 0)],
        "e1, 2e1, e2": [*e, (2, 0)],
        "e1, 2e1, e2, 2e2": [*e, (2, 0), (0, 2)],
        "e1, 2e1, 4e1, e2, 2e2": [*e, (2, 0), (4, 0), (0, 2)],
        "e1, 2e1, 3e1, e2": [*e, (2, 0), (3, 0)],
    }.items():
        yield "repeated and commensurate directions", name, along(directions)
    for name, directions in {
        "e1, e2, e1+e2": [*e, (1, 1)],
        "e1, e2, e1-e2": [*e, (1, -1)],
        "e1, e2, e1+e2, e1-e2": [*e, (1, 1), (1, -1)],
        "e1, e2, e1+2e2": [*e, (1, 2)],
        "e1, e2, 2e1+2e2": [*e, (2, 2)],
    }.items():
        yield "zonotopes, d = 2", name, along(directions)
    f = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    for name, directions in {
        "e1, e2, e3, e1+e2": [*f, (1, 1, 0)],
        "e1, e2, e3, e1+e2+e3": [*f, (1, 1, 1)],
        "e1, e2, e3, e1+e2, e2+e3": [*f, (1, 1, 0), (0, 1, 1)],
    }.items():
        yield "zonotopes, d = 3", name, along(directions)
    draw = random.Random(run.seed)
    for number, atoms in ((2, 2), (2, 3), (3, 3), (4, 3), (3, 4)):
        yield "generic heads", f"{number} heads of {atoms}", generic(number, atoms, draw)
    for i in range((4, 8, 16)[top]):
        yield "random small heads, d = 1", f"sample {i}", sample(1, draw)
        yield "random small heads, d = 2", f"sample {i}", sample(2, draw)
    for a in ((1, 2), (1, 3), (2, 3), (1, 2, 3)):
        size = len(a)
        heads = [ExactHead([[0], [x]], [1, 1], [[0] * size, [int(i == j) for j in range(size)]])
                 for i, x in enumerate(a)]  # fmt: skip
        yield "vector values", _list(a), heads
    for a, c in (((1, 3), (1, -3)), ((1, 2, 3, 5), (1, -1, -3, 1)), ((1, 2, 3), (1, -3, -3))):
        yield "signed values", f"{_list(a)} times {_list(c)}", steps(*a, values=c)


def hunt(run: _lab.Run) -> Iterator[Case]:
    """Sums of sigmoids with signed coefficients, a random choice for each number of terms."""
    draw = random.Random(run.seed)
    for size in (2, 3, 4):
        signs = product((1, -1, 2, -2, 3, -3), repeat=size - 1)
        everything = list(product(combinations(range(1, 7), size), signs))
        for a, c in draw.sample(everything, min(len(everything), HUNT[run.preset])):
            yield "hunt", f"{_list(a)} times {_list((1, *c))}", steps(*a, values=(1, *c))


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """One row of results."""
    family, name, heads = case
    start = time.perf_counter()
    result = fuse(heads, time_limit=seconds)
    spent = time.perf_counter() - start
    return {
        "family": family,
        "sum": name,
        "terms": result.terms,
        "product": result.product,
        "distinct product": distinct_product(heads),
        "vertices": result.vertices,
        "lower": result.lower,
        "upper": result.upper,
        "closed": result.closed,
        "method": result.method,
        "known": KNOWN.get((family, name)),
        "seconds": round(spent, 3),
    }


def distinct_product(heads: Sequence[ExactHead]) -> int:
    """Atoms of the plain product over distinct denominators."""
    data = [h.data() for h in heads]
    found: list[Any] = []
    for r in ratios(data, value_scale(data)):
        if r.denominator not in found:
            found.append(r.denominator)
    total = found[0]
    for q in found[1:]:
        total = total * q
    return len(total)


KNOWN = {
    ("sigmoid lists", "1,1"): 2, ("sigmoid lists", "1,1,1,1"): 2, ("sigmoid lists", "1,2"): 4,
    ("sigmoid lists", "1,3"): 4, ("sigmoid lists", "2,3"): 4, ("sigmoid lists", "1,1,2"): 4,
    ("sigmoid lists", "1,3,5"): 8, ("sigmoid lists", "1,3,4,5"): 12,
    ("arithmetic chains 1..H", "1,2,3"): 7, ("zonotopes, d = 2", "e1, e2, e1+e2"): 7,
    ("zonotopes, d = 2", "e1, e2, e1-e2"): 7, ("zonotopes, d = 2", "e1, e2, e1+e2, e1-e2"): 12,
    ("repeated and commensurate directions", "e1, e1, e2"): 4, ("generic heads", "4 heads of 3"): 81,
    **{("dyadic chains", f"2^j, j < {d}"): 2**d for d in range(2, 11)},
    **{("shifts", f"{d} shifts"): d + 1 for d in range(2, 13)},
    **{("sigmoid sums W_d", f"W_{d}"): 2**d for d in range(1, 17)},
}  # fmt: skip


def steps(*sizes: int, values: Sequence[int] = ()) -> list[ExactHead]:
    """sum_j c_j sigma(a_j q)."""
    return [
        ExactHead([[0], [a]], [1, 1], [0, c]) for a, c in zip(sizes, values or [1] * len(sizes), strict=True)
    ]


def along(directions: Sequence[Sequence[int]]) -> list[ExactHead]:
    """sum_j sigma(<u_j, q>)."""
    return [ExactHead([[0] * len(u), list(u)], [1, 1], [0, 1]) for u in directions]


def shifts(d: int) -> list[ExactHead]:
    """sum_j sigma(q + log j)."""
    return [ExactHead([[0], [1]], [1, j + 1], [0, 1]) for j in range(d)]


def binomial(n: int) -> list[ExactHead]:
    """One head with the denominator (1 + x)^n and squares as values."""
    weights = [1]
    for _ in range(n):
        weights = [a + b for a, b in zip([0, *weights], [*weights, 0], strict=True)]
    return [ExactHead([[i] for i in range(n + 1)], weights, [i**2 if i < n else 0 for i in range(n + 1)])]


def uniform(radices: Sequence[int]) -> list[ExactHead]:
    """Uniform heads with keys M_h {0..n_h-1}, M_h the product of the n before."""
    heads, m = [], 1
    for h, n in enumerate(radices):
        heads.append(ExactHead([[m * i] for i in range(n)], [1] * n, [(i + 1) ** (h + 2) for i in range(n)]))
        m *= n
    return heads


def generic(number: int, atoms: int, draw: random.Random) -> list[ExactHead]:
    """Heads with linearly independent key differences."""
    dim, heads = number * (atoms - 1), []
    for h in range(number):
        unit = [[int(i == h * (atoms - 1) + k) for i in range(dim)] for k in range(atoms - 1)]
        numbers = [[draw.randint(1, 9) for _ in range(atoms)] for _ in range(2)]
        heads.append(ExactHead([[0] * dim, *unit], *numbers))
    return heads


def sample(dim: int, draw: random.Random) -> list[ExactHead]:
    """Two or three heads with a few small keys."""
    heads = []
    for _ in range(draw.choice((2, 3))):
        keys = draw.sample(list(product(range(4), repeat=dim)), draw.choice((2, 3)))
        heads.append(
            ExactHead(keys, [draw.randint(1, 3) for _ in keys], draw.sample(range(-3, 4), len(keys)))
        )
    return heads


def table(rows: Sequence[dict[str, Any]]) -> str:
    header = ["family", "sum", "terms", "product", "distinct", "vertices", "minimum", "lower end by", "s"]
    return _lab.markdown_table(
        header,
        [
            [r["family"], r["sum"], r["terms"], r["product"], r["distinct product"], r["vertices"],
             r["lower"] if r["closed"] else f"[{r['lower']}, {r['upper']}]", r["method"], r["seconds"]]
            for r in rows
        ],
    )  # fmt: skip


def draw_ratios(rows: Sequence[dict[str, Any]], axis: Axes) -> None:
    """Vertices, bracket and product over the upper end, one family per line."""
    names = list(dict.fromkeys(r["family"] for r in rows))
    for r in rows:
        y = len(names) - names.index(r["family"])
        axis.plot(r["vertices"] / r["upper"], y, "<", color="C0", ms=5, alpha=0.6)
        axis.plot(r["product"] / r["upper"], y, ">", color="C1", ms=5, alpha=0.6)
        axis.plot([r["lower"] / r["upper"], 1], [y, y], color="C2", lw=4, alpha=0.5, solid_capstyle="butt")
    axis.axvline(1, color="black", lw=0.8)
    axis.set_xscale("log", base=2)
    axis.set_yticks(range(len(names), 0, -1), names, fontsize=8)
    axis.set_xlabel("atoms, relative to the smallest head found")
    axis.set_title("blue: vertices; green: open brackets; orange: plain product", fontsize=10)


def draw_hunt(found: Sequence[dict[str, Any]], axis: Axes) -> None:
    """Certified minimum against the product over distinct denominators."""
    counts: dict[tuple[int, int], int] = {}
    for r in found:
        if r["closed"]:
            pair = r["distinct product"], r["upper"]
            counts[pair] = counts.get(pair, 0) + 1
    for (x, y), n in counts.items():
        axis.scatter(x, y, s=12 + 8 * n**0.5, color="C3" if y < x else "C7", alpha=0.8)
        axis.annotate(str(n), (x, y), xytext=(5, -9), textcoords="offset points", fontsize=7)
    top = max((max(p) for p in counts), default=2) + 1
    axis.plot([0, top], [0, top], color="black", lw=0.8)
    axis.set_xlabel("atoms of the product over distinct denominators")
    axis.set_ylabel("certified minimum")
    axis.set_title("sums of 2 to 4 sigmoids (numbers: how many sums)", fontsize=10)


def progress(items: list[Case]) -> Iterator[Case]:
    """The same items with a progress bar on stderr."""
    from rich.console import Console

    return iter(track(items, description="fusing", console=Console(stderr=True)))


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


if __name__ == "__main__":
    sys.exit(main())
