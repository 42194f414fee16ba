"""Columns of the store."""

import pyarrow as pa

SCHEMA_VERSION = 1
# The only columns that differ between two runs of a survey.
TIMING = ("seconds", "compile_seconds", "peak_memory_mb")

_TEXT = "cell matrix search model revision digest"
_COUNTS = "layer head window rows columns"
_RESULT_COUNTS = "lower upper svd_lower svd_upper row_cover cross svd_dimension"
_RESULT_TEXT = "lower_kind upper_kind lower_certificate upper_certificate problem"

SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in _TEXT.split()]
    + [pa.field(name, pa.int32(), nullable=False) for name in _COUNTS.split()]
    + [pa.field(name, pa.float64(), nullable=False) for name in ("beta", "eps", *TIMING)]
    + [pa.field(name, pa.int32()) for name in _RESULT_COUNTS.split()]
    + [pa.field("closed", pa.bool_())]
    + [pa.field(name, pa.float64()) for name in ("lower_error", "upper_error")]
    + [pa.field(name, pa.string()) for name in _RESULT_TEXT.split()]
    + [pa.field("lane_steps", pa.int64())]
)
"""One row per cell. ``lower <= r_eps <= upper`` of softmax(beta * logits), proved by the two certificates
(paths relative to the store), whose errors bound a_{lower} from below and a_{upper+1} from above. The
other ranks are those of ``baselines``. Numbers are null where there is none; ``problem`` then says why."""
