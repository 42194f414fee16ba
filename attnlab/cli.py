"""The ``attnlab`` command: arguments in, tables and files out. The work is done by the library.

Exit codes: 0 done, 1 a claim fails, 2 bad input. Results go to stdout, progress and errors to stderr.
"""

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ._survey_command import survey

app = typer.Typer(
    help="A theory lab for softmax attention: exact fusion and certified rank, with proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
terminal = Console(highlight=False)
progress = Console(stderr=True, highlight=False)
ROWS = 40  # atoms shown in the table of a fused head

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Key = Annotated[
    str | None,
    typer.Option(help="attention, logits or q,k; attention=NAME for an array called NAME."),
]
HeadIndex = Annotated[
    str | None, typer.Option("--head", help="Which matrix of a stack, e.g. 3,5 for layer 3 head 5.")
]
Beta = Annotated[
    float | None,
    typer.Option(help="Multiplies q k' (a transformer head has 1/sqrt d); default 1 or the file's beta."),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; every foreseeable failure is one sentence on stderr and exit code 2."""
    try:
        app(args=None if argv is None else list(argv))
    except SystemExit as end:  # how the command line library reports its own outcomes
        return int(end.code or 0)
    except (ValueError, OSError, ImportError) as error:
        progress.print(f"attnlab: {error}", style="red", markup=False, soft_wrap=True)
        return 2
    return 0


@app.command()
def info(as_json: Json = False) -> None:
    """Versions, devices and precision: what a run on this machine will use."""
    import importlib.metadata
    import platform

    import attnlab

    from ._devices import describe, use_every_core

    use_every_core()

    packages = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "python-flint", "highspy", "pyarrow")
    extras = ("transformers", "torch", "ray", "cvxpy")
    facts: dict[str, Any] = {
        "attnlab": attnlab.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(importlib.metadata, name) for name in packages},
        "optional": {name: _version(importlib.metadata, name) for name in extras},
        "cpu_count": os.cpu_count(),
        **describe(),
    }
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v or '(not installed)'}" for k, v in value.items())
        table.add_row(name, "; ".join(value) if isinstance(value, list) else str(value))
    terminal.print(table)


@app.command()
def bracket(
    file: Annotated[
        Path, typer.Argument(help=".npy, .npz or .safetensors with attention, logits, or q and k.")
    ],
    eps: Annotated[
        str, typer.Option(help="Tolerances (largest row l1 error), e.g. 0.1,0.2.")
    ] = "0.1,0.2,0.5",
    key: Key = None,
    head: HeadIndex = None,
    beta: Beta = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Divide each row by its sum first.")] = False,
    effort: Annotated[str, typer.Option(help="fast, normal or thorough.")] = "normal",
    seed: Annotated[int, typer.Option(help="Seed of the random starts.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write certificates, figure and JSON here.")] = None,
    as_json: Json = False,
) -> None:
    """Certified bracket on r_eps: the least rank within eps of an attention matrix in every row (l1)."""
    from ._attention_file import read_matrix

    tolerances = _numbers("--eps", eps, float)
    source = read_matrix(file, key, _numbers("--head", head, int) if head else (), beta, normalize)

    import jax

    from ._devices import fallback, use_every_core

    use_every_core()
    jax.config.update("jax_enable_x64", True)  # an application may choose; the library never does
    if (said := fallback()) is not None:
        progress.print(f"attnlab: {said}", style="yellow", markup=False, soft_wrap=True)
    from .rank import FactoredAttention, Logits, focused_profile
    from .rank._report import write_report

    with progress.status("searching") as status:
        matrix = Logits(source.array) if source.kind == "logits" else source.array
        profile = focused_profile(
            FactoredAttention(**source.factors) if source.factors else matrix,
            tolerances,
            key=seed,
            effort=effort,
            report=lambda line: status.update(line),
        )
    found = [profile.bracket(e) for e in tolerances]
    shape = list(source.shape)
    result: dict[str, Any] = {"source": source.source, "shape": shape, "effort": effort, "seed": seed}
    result["brackets"] = [
        {"eps": b.eps, "lower": b.lower, "upper": b.upper, "closed": b.closed} for b in found
    ]
    result["cost"] = profile.cost
    if out is not None:
        write_report(out, profile, found, result)
    if as_json:
        print(json.dumps(result))
        return
    table = Table(title=f"{source.source}, {shape[0]} x {shape[1]}: certified brackets on r_eps")
    for column in ("eps", "lower", "upper", "", "lower end proved by", "upper end proved by"):
        table.add_column(column, justify="right" if column in ("eps", "lower", "upper") else "left")
    for b in found:
        low, high = b.lower_certificate, b.upper_certificate
        table.add_row(
            f"{b.eps:g}",
            str(b.lower),
            str(b.upper),
            "closed" if b.closed else f"gap {b.upper - b.lower}",
            f"{low.kind}, a_{b.lower} >= {low.claim['error']:.4g}" if low else "",
            f"{high.kind}, a_{b.upper + 1} <= {high.claim['error']:.4g}",
        )
    terminal.print(table)
    terminal.print(
        f"{profile.cost['seconds']:.1f} s, {profile.cost['compile_seconds']:.1f} s of it compiling, "
        f"{profile.cost['lane_steps']:,.0f} lane steps"
        + (f"; certificates, figure and bracket.json in {out}" if out else "")
    )


@app.command()
def fuse(
    heads: Annotated[Path, typer.Argument(help='JSON: [{"keys": ..., "weights": ..., "values": ...}, ...].')],
    window: Annotated[
        int | None, typer.Option(help="Search for fewer atoms with keys in (0..N)^variables.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for the searches.")] = 60,
    out: Annotated[Path | None, typer.Option(help="Write both certificates and fusion.json here.")] = None,
    as_json: Json = False,
) -> None:
    """The single head equal to a sum of heads, and a certified bracket on the atoms it needs."""
    from .fusion import fuse as fuse_heads
    from .fusion._heads_file import fusion_data, keys_of, read_heads, write_fusion

    read = read_heads(heads)
    with progress.status("fusing"), _stray_output_to_stderr():
        result = fuse_heads(read, window=window, time_limit=time_limit)
    data = fusion_data(result)
    if out is not None:
        write_fusion(out, result, data)
    if as_json:
        print(json.dumps(data))
        return
    size = f"exactly {result.lower}" if result.closed else f"{result.lower} to {result.upper}"
    terminal.print(f"{len(read)} heads with {result.terms} atoms in all, as one head: {size} atoms")
    table = Table()
    for column in ("key (up to a shift)", "weight", "value"):
        table.add_column(column, justify="right")
    atoms = list(zip(keys_of(result.head), result.head.weights, result.head.values, strict=True))
    for key, weight, value in atoms[:ROWS]:
        table.add_row(_vector(key), str(weight), _vector(value))
    terminal.print(table)
    if len(atoms) > ROWS:
        terminal.print(f"... and {len(atoms) - ROWS:,} more atoms (--json or --out for all)")
    terminal.print(
        f"lower end by {result.method}; the plain product has {result.product:,} atoms"
        + (f"; certificates and fusion.json in {out}" if out else ""),
        soft_wrap=True,
    )


@app.command()
def verify(
    certificates: Annotated[list[Path], typer.Argument(help="Certificate files (.npz).")],
    subject: Annotated[Path | None, typer.Option(help="The matrix, for detached certificates.")] = None,
    key: Key = None,
    head: HeadIndex = None,
    beta: Beta = None,
    arb: Annotated[bool, typer.Option("--arb", help="Audit in Arb ball arithmetic (slower).")] = False,
    as_json: Json = False,
) -> None:
    """Recompute what certificates claim; exit code 0 only if every one holds."""
    from ._attention_file import read_matrix
    from .certify import load

    arrays = None
    if subject is not None:
        read = read_matrix(subject, key, _numbers("--head", head, int) if head else (), beta)
        arrays = read.subject
    loaded = [load(path) for path in certificates]  # a bad file among many stops before any verdict
    verdicts = [certificate.verify(arrays, arb=arb) for certificate in loaded]
    if as_json:
        rows = [
            {
                "file": str(p),
                "kind": c.kind,
                "holds": v.holds,
                "statement": v.statement,
                "bound": _finite(v.bound),
            }
            for p, c, v in zip(certificates, loaded, verdicts, strict=True)
        ]
        print(json.dumps(rows))
    else:
        for path, certificate, verdict in zip(certificates, loaded, verdicts, strict=True):
            word = "[green]holds[/green]" if verdict else "[red]FAILS[/red]"
            terminal.print(f"{word}  {certificate.kind}  {path}")
            terminal.print(f"       {verdict.statement}", markup=False, soft_wrap=True)
    if not all(verdicts):
        raise typer.Exit(1)


def _numbers(option: str, text: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be numbers separated by commas, got {text!r}.") from None


@contextlib.contextmanager
def _stray_output_to_stderr() -> Iterator[None]:
    """HiGHS prints a debugging line to the C stdout in rare cases; it must not end up inside the JSON."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(saved, 1)
        os.close(saved)


def _vector(value: Any) -> str:
    """A number, or a row of numbers in brackets."""
    return (
        f"({', '.join(map(str, value))})"
        if isinstance(value, tuple) and len(value) != 1
        else (str(value[0] if isinstance(value, tuple) else value))
    )


def _finite(x: float) -> float | None:
    """NaN is not JSON."""
    return x if x == x and abs(x) != float("inf") else None


def _version(metadata: Any, name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


app.command()(survey)

if __name__ == "__main__":
    sys.exit(main())
