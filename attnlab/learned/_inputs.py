"""Texts and images into model inputs, one window each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _sample

Text = str | Path
Image = str | Path | np.ndarray


def text_windows(
    texts: Text | Sequence[Text] | None, tokenizer: Any, windows: int, max_length: int, label: str
) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    """Model inputs and tokens of the first ``windows`` windows of every text.

    A text shorter than one window makes one short window; what is left over at the end of a longer
    text is not used, so that windows have one shape.

    Raises:
        ValueError: an empty text, too few tokens for the windows, or a file that is not text.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{label} has no fast tokenizer: add a tokenizer.json to its folder.")
    special = tokenizer.num_special_tokens_to_add()
    if max_length < special + 2:
        raise ValueError(f"max_length must be at least {special + 2} for {label}, got {max_length}.")
    found = []
    for name, text in _texts(texts):
        if not text.strip():
            raise ValueError(f"{name} is empty: give some text.")
        coded = tokenizer(text, truncation=True, max_length=max_length, return_overflowing_tokens=True)
        sizes = [len(ids) for ids in coded["input_ids"]]
        full = [i for i, size in enumerate(sizes) if size == max_length] or [0]
        if sizes[0] <= special:
            raise ValueError(f"{name} has no tokens: give some text.")
        if len(full) < windows:
            raise ValueError(
                f"{name} has {sum(s - special for s in sizes)} tokens, which make {len(full)} of {windows} "
                f"windows of {max_length}: give longer text, or lower windows or max_length."
            )
        names = [n for n in tokenizer.model_input_names if n in coded]
        for i in full[:windows]:
            tokens = tuple(tokenizer.convert_ids_to_tokens(coded["input_ids"][i]))
            found.append(({n: [coded[n][i]] for n in names}, tokens))
    return found


def image_windows(
    images: Image | Sequence[Image] | None, processor: Any
) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    """Model inputs of every image; no tokens.

    Raises:
        ValueError: a file that is no image, or an array that is not (height, width, 3) uint8.
    """
    if images is None:
        images = _sample.image()
    several = [images] if isinstance(images, str | Path | np.ndarray) else list(images)
    if not several:
        raise ValueError("images is empty: give at least one.")
    loaded = [_image(i, item) for i, item in enumerate(several)]
    return [({n: np.asarray(x) for n, x in processor(images=item).items()}, ()) for item in loaded]


def _texts(texts: Text | Sequence[Text] | None) -> list[tuple[str, str]]:
    if texts is None:
        return [("the sample text", _sample.TEXT)]
    several = [texts] if isinstance(texts, str | Path) else list(texts)
    if not several:
        raise ValueError("texts is empty: give at least one.")
    named = []
    for i, item in enumerate(several):
        if isinstance(item, Path):
            try:
                named.append((str(item), item.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                raise ValueError(f"{item} is not UTF-8 text: convert it.") from None
        elif isinstance(item, str):
            if "\n" not in item and len(item) < 256 and Path(item).is_file():
                raise ValueError(f"texts[{i}] is the name of a file: pass pathlib.Path({item!r}).")
            named.append((f"texts[{i}]", item))
        else:
            raise ValueError(f"texts[{i}] must be a str (text) or a Path (file), got {type(item).__name__}.")
    return named


def _image(index: int, item: Image) -> Any:
    import PIL.Image

    if isinstance(item, np.ndarray):
        if item.ndim != 3 or item.shape[2] != 3 or item.dtype != np.uint8:
            raise ValueError(
                f"images[{index}] must have shape (height, width, 3) and dtype uint8, got {item.shape} "
                f"{item.dtype}."
            )
        return PIL.Image.fromarray(item)
    try:
        return PIL.Image.open(item).convert("RGB")
    except PIL.UnidentifiedImageError:
        raise ValueError(f"{item} is not an image that Pillow can read: convert it to PNG.") from None
