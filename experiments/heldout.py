"""Does the geometry of a head predict its eps-rank beyond a strong baseline, on heads held out?

The study is fixed in heldout_protocol.toml, which was committed before any held-out cell was scored; the
features, splits, metric and decision rule are read from it and its SHA-256 goes into the results. The
response is the certified bracket itself (interval-censored regression). ``paper`` runs the protocol;
``small`` runs it on some of the heads, ``smoke`` on the first 12 tokens of a few.
"""

import argparse
import hashlib
import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _heads
import _lab
import jax
import matplotlib.pyplot as plt
import numpy as np
from _heldout_features import head_features, latent_interval, rank_of, subject_of
from _interval_regression import Fit, fit_chosen, folds_of
from matplotlib.figure import Figure
from rich.progress import track

from attnlab.learned import CapturedHead
from attnlab.survey import Settings

PROTOCOL = Path(__file__).parent / "heldout_protocol.toml"
BLOCKS = {
    "baseline": ("baseline",),
    "baseline + native": ("baseline", "native"),
    "baseline + intrinsic": ("baseline", "intrinsic"),
    "all": ("baseline", "native", "intrinsic"),
}
COMPARISONS = (
    ("native over baseline", "baseline", "baseline + native"),
    ("intrinsic over baseline", "baseline", "baseline + intrinsic"),
    ("intrinsic over baseline + native", "baseline + native", "all"),
    ("native over baseline + intrinsic", "baseline + intrinsic", "all"),
)
CONFIRMATORY = "intrinsic over baseline + native"
CROP = 10


@dataclass(frozen=True, eq=False)
class Cells:
    """One row per cell: what is known before and after the search.

    Attributes:
        rows: source, head, bracket and features of each.
        source, head: shape (cells,), names. low, high: ends of the latent response. size: min(m, N).
    """

    rows: list[dict[str, Any]]
    source: np.ndarray
    head: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray

    def features(self, protocol: dict[str, Any], model: str) -> np.ndarray:
        names = [name for block in BLOCKS[model] for name in protocol["features"][block]]
        return np.array([[row[name] for name in names] for row in self.rows])


@dataclass(frozen=True, eq=False)
class Scored:
    """Held-out predictions of the nested models on some cells.

    Attributes:
        index: shape (n,), into the cells.
        scores, medians, bands: by model, log scores (n,), predicted median rank (n,), and its central 80%
            interval (n, 2).
    """

    index: np.ndarray
    scores: dict[str, np.ndarray]
    medians: dict[str, np.ndarray]
    bands: dict[str, np.ndarray]


def sources(preset: str, protocol: dict[str, Any], model: str | Path) -> dict[str, list[CapturedHead]]:
    """Heads by source; every head is maskless."""
    found = {"MiniLM": _heads.heads_of(model), "DINOv2": _heads.heads_of(_heads.VISION)}
    if preset == "smoke":
        return {name: [_heads.cropped(h, CROP) for h in heads[::6]] for name, heads in found.items()}
    if preset == "small":
        return {name: heads[::4] for name, heads in found.items()}
    for family in protocol["cells"]["untrained"]:
        try:
            found[family] = _heads.untrained(family, protocol["cells"]["seed"])
        except (ModuleNotFoundError, ValueError) as error:
            print(f"left out {family}: {error}", file=sys.stderr)
    return {name: [subject_of(h) for h in heads] for name, heads in found.items()}


def all_features(
    found: dict[str, list[CapturedHead]], protocol: dict[str, Any], path: Path, digest: str
) -> dict[tuple[str, float, float], dict[str, float]]:
    """Features by (digest of the logits, beta, eps); those of finished heads are kept in ``path``."""
    cells = protocol["cells"]
    known: dict[str, list[dict[str, float]]] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        if entry["protocol"] == digest:
            known[entry["digest"]] = entry["rows"]
    missing = [h for heads in found.values() for h in heads if h.digest not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for head in track(missing, "features", console=_heads.Console(stderr=True), disable=not missing):
            rows = head_features(head, cells["betas"], cells["eps"])
            known[head.digest] = rows
            file.write("\n" + json.dumps({"protocol": digest, "digest": head.digest, "rows": rows}))
            file.flush()
    return {(d, r["beta"], r["eps"]): r for d, rows in known.items() for r in rows}


def collect(
    found: dict[str, list[CapturedHead]], features: dict, bracket_rows: list[dict[str, Any]]
) -> Cells:
    names = {(h.digest, h.layer, h.head): source for source, heads in found.items() for h in heads}
    rows = []
    for r in bracket_rows:
        if r["problem"]:
            print(f"left out {r['model']} {r['layer']}.{r['head']}: {r['problem']}", file=sys.stderr)
            continue
        source = names[r["digest"], r["layer"], r["head"]]
        low, high = latent_interval(r["lower"], r["upper"], min(r["rows"], r["columns"]))
        kept = {k: r[k] for k in ("layer", "head", "digest", "rows", "columns", "lower", "upper")}
        ends = {"latent low": low, "latent high": high}
        rows.append({"source": source, **kept, **ends, **features[r["digest"], r["beta"], r["eps"]]})
    head = [f"{r['source']} {r['layer']}.{r['head']}" for r in rows]
    return Cells(
        rows,
        np.array([r["source"] for r in rows]),
        np.array(head),
        np.array([r["latent low"] for r in rows]),
        np.array([r["latent high"] for r in rows]),
        np.array([min(r["rows"], r["columns"]) for r in rows]),
    )


def fit_models(cells: Cells, train: np.ndarray, protocol: dict[str, Any]) -> dict[str, Fit]:
    """Every nested model on the training cells, penalties chosen on the same inner folds."""
    settings, fits = protocol["model"], {}
    for model in BLOCKS:
        rng = np.random.default_rng(protocol["splits"]["seed"])
        x = cells.features(protocol, model)[train]
        fits[model] = fit_chosen(
            x, cells.low[train], cells.high[train], cells.head[train], settings["penalties"],
            settings["inner_folds"], rng,
        )  # fmt: skip
    return fits


def score(cells: Cells, fits: dict[str, Fit], test: np.ndarray, protocol: dict[str, Any]) -> Scored:
    scores, medians, bands = {}, {}, {}
    for model, fitted in fits.items():
        x = cells.features(protocol, model)[test]
        n = cells.size[test]
        scores[model] = fitted.log_score(x, cells.low[test], cells.high[test])
        medians[model] = rank_of(fitted.location(x), n)
        bands[model] = np.stack([rank_of(fitted.quantile(x, level), n) for level in (0.1, 0.9)], 1)
    return Scored(test, scores, medians, bands)


def joined(parts: Sequence[Scored]) -> Scored:
    def of(name: str) -> dict[str, np.ndarray]:
        return {m: np.concatenate([getattr(p, name)[m] for p in parts]) for m in BLOCKS}

    return Scored(np.concatenate([p.index for p in parts]), of("scores"), of("medians"), of("bands"))


def splits(cells: Cells, protocol: dict[str, Any]) -> dict[str, Scored]:
    """Scores of every split: by head, by model in both directions, and on untrained models."""
    trained = np.isin(cells.source, protocol["cells"]["trained"])
    inside = np.flatnonzero(trained)
    rng = np.random.default_rng(protocol["splits"]["seed"])
    fold = folds_of(cells.head[inside], protocol["splits"]["folds"], rng)
    plans = [("by head", inside[fold != i], inside[fold == i]) for i in range(protocol["splits"]["folds"])]
    for held in protocol["cells"]["trained"]:
        test = np.flatnonzero(cells.source == held)
        plans.append((f"by model: {held} held out", np.setdiff1d(inside, test), test))
    for family in protocol["cells"]["untrained"]:
        test = np.flatnonzero(cells.source == family)
        if len(test):
            plans.append((f"untrained: {family}", inside, test))
    found: dict[str, list[Scored]] = {}
    for name, train, test in track(plans, "fits", console=_heads.Console(stderr=True)):
        found.setdefault(name, []).append(score(cells, fit_models(cells, train, protocol), test, protocol))
    return {name: joined(parts) for name, parts in found.items()}


def increment(
    cells: Cells, scored: Scored, small: str, large: str, protocol: dict[str, Any]
) -> tuple[float, float, float]:
    """Mean gain in log score per cell, and its bootstrap interval over heads."""
    settings = protocol["bootstrap"]
    gains = scored.scores[large] - scored.scores[small]
    _, group = np.unique(cells.head[scored.index], return_inverse=True)
    total, count = np.bincount(group, gains), np.bincount(group)
    rng = np.random.default_rng(protocol["splits"]["seed"])
    draws = rng.integers(len(total), size=(settings["replicates"], len(total)))
    means = total[draws].sum(1) / count[draws].sum(1)
    tail = (1 - settings["level"]) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(gains.mean()), float(low), float(high)


def decided(low: float, high: float) -> str:
    """The word of the decision rule.

    >>> decided(0.1, 0.2), decided(-0.1, 0.2), decided(-0.2, -0.1)
    ('adds', 'not detectable', 'hurts')
    """
    return "adds" if low > 0 else "hurts" if high < 0 else "not detectable"


def summary(cells: Cells, scored: Scored, model: str) -> tuple[float, float, float]:
    """Mean log score, mean distance of the median rank from the bracket, share of brackets met."""
    lower, upper = (np.array([cells.rows[i][end] for i in scored.index]) for end in ("lower", "upper"))
    median, band = scored.medians[model], scored.bands[model]
    distance = np.maximum(np.maximum(lower - median, median - upper), 0)
    met = (band[:, 1] > lower - 0.5) & (band[:, 0] < upper + 0.5)
    return float(scored.scores[model].mean()), float(distance.mean()), float(met.mean())


def draw(
    cells: Cells,
    scored: dict[str, Scored],
    gains: dict[tuple[str, str], tuple[float, float, float]],
) -> Figure:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.8), width_ratios=[1.2, 1])
    labels = list(gains)
    names = [name for name, _, _ in COMPARISONS]
    place = np.array([-(list(scored).index(split) * 5.0 + names.index(name)) for split, name in labels])
    for (split, name), at in zip(labels, place, strict=True):
        mean, low, high = gains[split, name]
        colour = f"C{names.index(name)}"
        axes[0].plot([low, high], [at, at], color=colour, lw=2.5, solid_capstyle="butt")
        axes[0].plot(mean, at, "o", color=colour, ms=5, label=name if split == labels[0][0] else None)
    axes[0].axvline(0, color="0.6", lw=0.8)
    axes[0].set_yticks([-(i * 5.0 + 1.5) for i in range(len(scored))], list(scored))
    axes[0].set_xscale("symlog", linthresh=0.1)  # gains where a fit extrapolates dwarf the others
    axes[0].set_xlabel("gain in log score per held-out cell (nats), 95% over heads")
    axes[0].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.17), ncols=2, frameon=False)
    main = scored["by head"]
    chosen = main.index
    lower, upper = (np.array([cells.rows[i][end] for i in chosen]) for end in ("lower", "upper"))
    for source in np.unique(cells.source[chosen]):
        mask = cells.source[chosen] == source
        x = main.medians["all"][mask]
        middle = (lower[mask] + upper[mask]) / 2
        bars = np.stack([middle - lower[mask], upper[mask] - middle])
        axes[1].errorbar(x, middle, bars, fmt=".", ms=2, lw=0.6, alpha=0.5, label=source)
    limit = upper.max() * 1.15
    axes[1].plot([0.7, limit], [0.7, limit], color="0.4", lw=0.8)
    axes[1].set_xscale("log")
    axes[1].set_yscale("log")
    axes[1].set_xlim(0.7, limit)
    axes[1].set_ylim(0.7, limit)
    axes[1].set_xlabel("predicted median rank, heads held out, all blocks")
    axes[1].set_ylabel("certified bracket on r_eps")
    axes[1].legend(fontsize=8)
    figure.tight_layout()
    return figure


def verdict(gains: dict[tuple[str, str], tuple[float, float, float]], protocol: dict[str, Any]) -> str:
    mean, low, high = gains["by head", CONFIRMATORY]
    word = decided(low, high)
    said = (
        f"Confirmatory, {CONFIRMATORY}, split by head: the intrinsic block {_phrase(word)} "
        f"({mean:+.3f} nats per cell, 95% interval {low:+.3f} to {high:+.3f})."
    )
    across = [
        decided(*gains[f"by model: {held} held out", CONFIRMATORY][1:])
        for held in protocol["cells"]["trained"]
    ]
    if word == "adds":
        said += (
            " It transfers between the two models."
            if set(across) == {"adds"}
            else f" It does not transfer between the two models by the rule (there: {', '.join(across)})."
        )
    mean, low, high = gains["by head", "native over baseline"]
    return said + (
        f" Exploratory: the native block over the baseline alone {_phrase(decided(low, high))} "
        f"({mean:+.3f}, {low:+.3f} to {high:+.3f})."
    )


def _phrase(word: str) -> str:
    return {"adds": "adds", "hurts": "hurts"}.get(word, "adds nothing detectable")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _heads.add_work(parser)
    parser.add_argument("--model", help="in place of MiniLM: hub name, folder or attention file with q and k")


def main(argv: list[str] | None = None) -> int:
    run = _lab.start("heldout", __doc__ or "", argv=argv, add=add_arguments)
    text = PROTOCOL.read_bytes()
    digest, protocol = hashlib.sha256(text).hexdigest(), tomllib.loads(text.decode())
    if run.preset == "smoke":
        protocol["cells"] |= {"betas": [0.5, 1.0], "eps": [0.3, 0.6]}
        protocol["splits"]["folds"] = protocol["model"]["inner_folds"] = 2
        protocol["model"]["penalties"] = [10.0]
    chosen = protocol["cells"]
    model = run.more.model or (_heads.COMMITTED if run.preset == "smoke" else _heads.minilm())
    run.facts.update(
        protocol=PROTOCOL.name,
        protocol_sha256=digest,
        follows_protocol=run.preset == "paper" and not run.more.model,
        model=Path(model).name,
    )
    settings = Settings(tuple(chosen["eps"]), chosen["effort"], chosen["precision"], chosen["seed"])
    with jax.enable_x64(True):
        found = sources(run.preset, protocol, model)
        heads = [h for group in found.values() for h in group]
        kind = "smoke" if run.preset == "smoke" else "heads"
        features = all_features(found, protocol, run.more.work / f"heldout-{kind}.jsonl", digest)
        rows = _heads.brackets(heads, chosen["betas"], settings, run.more.work / f"survey-{kind}")
    cells = collect(found, features, rows)
    scored = splits(cells, protocol)
    gains = {
        (split, name): increment(cells, part, small, large, protocol)
        for split, part in scored.items()
        for name, small, large in COMPARISONS
    }
    save(run, cells, scored, gains, protocol, digest)
    return 0


def save(
    run: _lab.Run,
    cells: Cells,
    scored: dict[str, Scored],
    gains: dict[tuple[str, str], tuple[float, float, float]],
    protocol: dict[str, Any],
    digest: str,
) -> None:
    main_split = scored["by head"]
    for model, values in main_split.scores.items():
        for i, value in zip(main_split.index, values, strict=True):
            cells.rows[i][f"log score, {model}"] = float(value)
    models = _lab.markdown_table(
        ["split", "cells", "model", "log score", "rank distance", "brackets met by the 80% interval"],
        [
            [split, len(part.index), model, *(f"{x:.3f}" for x in summary(cells, part, model))]
            for split, part in scored.items()
            for model in BLOCKS
        ],
    )
    increments = _lab.markdown_table(
        ["split", "comparison", "gain (nats per cell)", "95% interval", "decision"],
        [
            [split, name, f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}", decided(low, high)]
            for (split, name), (mean, low, high) in gains.items()
        ],
    )
    counts = _lab.markdown_table(
        ["source", "heads", "cells", "closed brackets", "median gap"],
        [
            [
                source,
                len(np.unique(cells.head[cells.source == source])),
                len(part),
                f"{np.mean([r['lower'] == r['upper'] for r in part]):.0%}",
                f"{np.median([r['upper'] - r['lower'] for r in part]):g}",
            ]
            for source in dict.fromkeys(cells.source)
            for part in [[r for r in cells.rows if r["source"] == source]]
        ],
    )
    scope = {
        "paper": "This run follows the protocol.",
        "small": "**Pilot**: a quarter of the heads, not the cells of the protocol.",
        "smoke": f"**Smoke test**: the first {CROP} tokens of a few heads, not the cells of the protocol.",
    }[run.preset]
    figure = draw(cells, scored, gains)
    run.save(
        cells.rows,
        figure,
        "# Held-out study: what predicts the eps-rank of a head\n\n**Question.** "
        f"{' '.join(protocol['question'].split())}\n\n"
        f"**Protocol.** [heldout_protocol.toml](../../heldout_protocol.toml), SHA-256 `{digest}`. {scope} "
        "The response is the certified bracket, through an interval-censored regression with logistic "
        "errors; a masked head enters as its full-support block; untrained models are scored only. Brackets "
        "are certified; features, fits and scores are estimates.\n\n"
        f"{counts}\n\n**Measured.** Log scores are per cell, higher is better; rank distance is from the "
        "predicted median to the bracket. The size is 64 or 65 in all trained models, so that a fit "
        "extrapolates to blocks of another size: gains there repair a poor baseline and say little about a "
        "block of features. Intervals resample heads; with two trained models the split by model is a case "
        f"study.\n\n{models}\n\n{increments}\n\n"
        f"**Verdict.** {verdict(gains, protocol)}",
    )


if __name__ == "__main__":
    sys.exit(main())
