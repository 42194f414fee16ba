"""Learned heads: attention logits, queries and keys of real checkpoints, or of files that hold them."""

from ._capture import capture as capture
from ._file import is_file as is_file
from ._file import load_file as load_file
from ._head import CapturedHead as CapturedHead

__all__ = ["CapturedHead", "capture", "is_file", "load_file"]
