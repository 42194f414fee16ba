"""``attnlab survey``: every head of checkpoints or files, into a store and a report."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from .learned import CapturedHead
    from .survey import Matrix, Settings

terminal = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def survey(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL-or-FILE...",
            help="Hub names or local folders of transformers models, or .npz, .npy, .safetensors files.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the store and the report.")],
    eps: Annotated[str, typer.Option(help="Tolerances (largest row l1 error).")] = "0.1,0.2",
    betas: Annotated[
        str, typer.Option(help="Inverse temperatures relative to the head's own, e.g. 0.5,1,2.")
    ] = "1",
    layers: Annotated[str | None, typer.Option(help="Which layers, e.g. 0,5; default all.")] = None,
    heads: Annotated[str | None, typer.Option(help="Which heads, e.g. 0,5; default all.")] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="Text file to run the models on; repeat for several.")
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option(help="Image to run vision models on; repeat for several.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Windows of every text.")] = 1,
    max_length: Annotated[int, typer.Option(help="Tokens of a window.")] = 64,
    effort: Annotated[str, typer.Option(help="fast, normal or thorough.")] = "fast",
    precision: Annotated[
        str, typer.Option(help="Of the search: float32 or float64. Certificates are float64.")
    ] = "float32",
    seed: Annotated[int, typer.Option(help="Seed of the random starts.")] = 0,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster: auto, HOST:PORT or ray://HOST:PORT.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers of a Ray cluster started here; default one per processor.")
    ] = None,
    num_gpus: Annotated[float, typer.Option(help="GPUs per Ray task, e.g. 0.5.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the store in --out.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take; write nothing.")
    ] = False,
    certificates: Annotated[bool, typer.Option(help="Keep the certificates.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Certified brackets on r_eps for every head, with heat maps and rank budgets; resumable."""
    from ._devices import fallback, use_every_core
    from .cli import _numbers
    from .survey import Settings, plan, run, verify_store, write_report
    from .survey._progress import Bar
    from .survey._store import admit

    settings = Settings(tuple(_numbers("--eps", eps, float)), effort, precision, seed, certificates)
    temperatures = _numbers("--betas", betas, float)
    choice = {
        "layers": _numbers("--layers", layers, int) if layers else None,
        "heads": _numbers("--heads", heads, int) if heads else None,
    }
    inputs = {"texts": text or None, "images": image or None, "windows": windows, "max_length": max_length}
    if not dry_run:
        admit(out, settings, resume)  # before a model is loaded for nothing
    if engine == "local":
        use_every_core()
        if (said := fallback()) is not None:
            errors.print(f"attnlab: {said}", style="yellow", markup=False, soft_wrap=True)
    with errors.status("reading heads") as status:
        matrices = plan(_heads(sources, choice, inputs, status.update), temperatures, settings)
    if dry_run:
        _predict(matrices, out, settings, as_json)
        return
    with Bar(errors) as bar:
        outcome = run(
            matrices,
            out,
            settings,
            engine=engine,
            resume=resume,
            address=address,
            workers=workers,
            num_gpus=num_gpus,
            watcher=bar,
        )
    with errors.status("writing the report") as status:
        proofs = verify_store(out, status.update) if certificates else None
        page = write_report(out, proofs)
    result = {"out": str(out), **asdict(outcome), "report": str(page)}
    if proofs is not None:
        result["proved"] = sum(not fault for fault in proofs.values())
    if as_json:
        print(json.dumps(result))
    else:
        search, beside, rest = outcome.shares()
        shares = f": {search:.1%} bracket search, {beside:.1%} baselines, {rest:.1%} the rest"
        terminal.print(
            f"{outcome.cells:,} cells in {out}; {outcome.computed:,} computed in {outcome.seconds:.0f} s"
            + (shares if outcome.computed else ""),
            soft_wrap=True,
        )
        if proofs is not None:
            terminal.print(f"{result['proved']:,} proved by the certificates read back from the store")
        terminal.print(f"report: {page}", soft_wrap=True)
    if proofs is not None and any(proofs.values()):
        errors.print(f"{sum(map(bool, proofs.values())):,} cells are not proved; see {page}", style="red")
        raise typer.Exit(1)


def _heads(
    sources: Sequence[str], choice: dict[str, Any], inputs: dict[str, Any], report: Callable[[str], None]
) -> Iterator["CapturedHead"]:
    from .learned import capture, is_file, load_file

    for source in sources:
        report(f"reading heads of {source}")
        found = load_file(source, **choice) if is_file(source) else capture(source, **inputs, **choice)
        yield from found


def _predict(matrices: "list[Matrix]", out: Path, settings: "Settings", as_json: bool) -> None:
    from .survey._forecast import forecast
    from .survey._progress import duration

    with errors.status("predicting") as status:
        found = forecast(matrices, out, settings, status.update)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    table = Table(title=f"{found.cells:,} cells, {found.stored:,} of them stored; nothing is written")
    for column in ("shape", "matrices", "cells", "stored", "s per matrix", "timed on"):
        table.add_column(column, justify="left" if column == "timed on" else "right")
    for b in found.buckets:
        size = f"{b.shape[0]} x {b.shape[1]}"
        table.add_row(size, str(b.matrices), str(b.cells), str(b.stored), f"{b.seconds:.1f}", b.source)
    terminal.print(table)
    terminal.print(
        f"about {duration(found.seconds)} in one process and {found.memory_mb:,.0f} MB of memory in each",
        soft_wrap=True,
    )
