"""Attention of any transformers model, on texts or images."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from .._extras import require
from ._file import check_choice
from ._head import CapturedHead
from ._inputs import Image, Text, image_windows, text_windows

INPUTS = {"input_ids": "texts", "pixel_values": "images"}  # main input of a model: the argument for it


def capture(
    model: str | Path,
    texts: Text | Sequence[Text] | None = None,
    images: Image | Sequence[Image] | None = None,
    *,
    windows: int = 1,
    max_length: int = 64,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    dtype: Literal["float64", "float32"] = "float64",
) -> Iterator[CapturedHead]:
    """Logits, queries and keys of every head of a checkpoint; needs the extra ``models``.

    The model runs with the eager attention of its own family, through a function registered with
    transformers' ``AttentionInterface``: queries and keys come after rotary embedding, keys repeated
    where heads share them, and masked logits are ``-inf``. That softmax(logits) is the attention the
    model used is checked in every layer. Inputs run one at a time, so nothing is padded.

    Arguments:
        model: name on the hub, or a local folder (config.json, weights, tokenizer or image processor).
        texts: one or several; a str is a text, a ``Path`` a text file. Default: a built-in sample.
        images: one or several, for vision models; file names or (height, width, 3) uint8 arrays. Default: a
            drawn one.
        windows: windows per text, each of ``max_length`` tokens; a shorter text makes one short window.
        max_length: tokens per window, special ones included.
        layers, heads: which ones; default all.
        dtype: precision of the forward pass; results are float32. float64 makes them the same on
            every machine but for the last bit; float32 needs half the memory.

    Returns:
        an iterator over windows, then layers, then heads. Errors are raised before it is returned.

    Raises:
        ModuleNotFoundError: torch or transformers is not installed.
        ValueError: the model cannot be loaded, has no attention hooks, or does not fit the input; or
            the input is empty or too long.

    Example::

        for head in capture("sentence-transformers/all-MiniLM-L6-v2", Path("letter.txt"), windows=3):
            print(head, head.attention().max())
    """
    if windows < 1:
        raise ValueError(f"windows must be at least 1, got {windows}.")
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype must be float64 or float32, got {dtype!r}.")
    torch = require("torch", "models", "Capturing a model")
    transformers = require("transformers", "models", "Capturing a model")
    from ._hooks import install, record

    folder = Path(model).is_dir()
    label = "/".join(Path(model).resolve().parts[1:][-2:]) if folder else str(model)
    with _quiet(transformers):
        network, revision = _load(transformers, torch, model, label, folder)
        network = network.to(getattr(torch, dtype)).eval()
        install(network, label)
        inputs = _inputs(transformers, network, model, label, texts, images, windows, max_length)

    def run(index: int) -> list[CapturedHead]:
        raw, tokens = inputs[index]
        tensors = {name: torch.as_tensor(value) for name, value in raw.items()}
        tensors = {n: t.to(getattr(torch, dtype)) if t.is_floating_point() else t for n, t in tensors.items()}
        layers_seen = record(network, tensors, label, layers)
        check_choice("layers", layers, set(range(len(layers_seen))), label)
        found = []
        for layer, seen in enumerate(layers_seen):
            if seen is None:
                continue
            if seen.logits.shape[0] != 1:
                raise ValueError(
                    f"{label} splits its input into {seen.logits.shape[0]} windows of attention."
                )
            check_choice("heads", heads, set(range(seen.logits.shape[1])), f"{label}, layer {layer}")
            for head in range(seen.logits.shape[1]) if heads is None else sorted(set(heads)):
                logits, q, k = (x[0, head].copy() for x in (seen.logits, seen.q, seen.k))
                found.append(
                    CapturedHead(label, revision, layer, head, index, logits, q, k, seen.scale, tokens)
                )
        return found

    first = run(0)

    def generate() -> Iterator[CapturedHead]:
        yield from first
        for index in range(1, len(inputs)):
            yield from run(index)

    return generate()


def _load(transformers: Any, torch: Any, model: str | Path, label: str, folder: bool) -> tuple[Any, str]:
    """The bare model in the precision of its file, and the SHA-256 of its weights."""
    try:
        network, info = transformers.AutoModel.from_pretrained(str(model), output_loading_info=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ValueError(_cannot_load(model, label, folder, error)) from None
    # A pooler is often left out of checkpoints and no attention depends on it.
    missing = sorted(n for n in info["missing_keys"] if "pooler" not in n.split("."))
    if missing:
        raise ValueError(
            f"{label}: the weights lack {len(missing)} tensors, the first {missing[0]}; they would be "
            "random, so use the folder that save_pretrained wrote."
        )
    if getattr(network.config, "is_encoder_decoder", False):
        raise ValueError(f"{label} is an encoder-decoder: give a folder that holds one of the two alone.")
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return network, digest.hexdigest()


def _cannot_load(model: str | Path, label: str, folder: bool, error: Exception) -> str:
    reason = re.split(r"(?<=[a-z\]'\"])\. |\n", str(error).strip())[0].rstrip(".")
    if folder:
        return f"{label} is not a folder that transformers can load a model from ({reason})."
    return (
        f"model {str(model)!r} is neither a local folder nor found on the hub (unknown name, or no network): "
        f"give the path of a folder with config.json, the weights and the tokenizer ({reason})."
    )


def _inputs(
    transformers: Any,
    network: Any,
    model: str | Path,
    label: str,
    texts: Any,
    images: Any,
    windows: int,
    max_length: int,
) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    kind = INPUTS.get(network.main_input_name)
    if kind is None:
        raise ValueError(f"{label} takes {network.main_input_name}, neither texts nor images.")
    if (texts if kind == "images" else images) is not None:
        other = "texts" if kind == "images" else "images"
        raise ValueError(
            f"{label} takes {kind}, not {other}: pass {kind}=, or nothing for a built-in sample."
        )
    loader = transformers.AutoTokenizer if kind == "texts" else transformers.AutoImageProcessor
    if kind == "texts":
        config = network.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        if limit is not None and max_length > limit:
            raise ValueError(
                f"max_length {max_length} is longer than the {limit} positions of {label}: lower it."
            )
    try:
        prepare = loader.from_pretrained(str(model))
    except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        what = "tokenizer" if kind == "texts" else "image processor"
        raise ValueError(f"{label} has no {what} that transformers can load ({reason}).") from None
    if kind == "images":
        return image_windows(images, prepare)
    limit = getattr(prepare, "model_max_length", max_length)
    if max_length > limit:
        raise ValueError(f"max_length {max_length} is longer than the {limit} tokens of {label}: lower it.")
    return text_windows(texts, prepare, windows, max_length, label)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No bars and advice from transformers while it loads; the user's settings come back."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
