"""Surveys: certified brackets for every head of a checkpoint, stored as they come, on one machine or many.

>>> from attnlab.survey import Settings, plan
>>> plan([], [1.0], Settings((0.1,)))
Traceback (most recent call last):
    ...
ValueError: there is no head to survey: check the choice of layers and heads.
"""

from ._cells import Matrix as Matrix
from ._cells import Settings as Settings
from ._cells import buckets as buckets
from ._cells import plan as plan
from ._report import write_report as write_report
from ._run import Outcome as Outcome
from ._run import Watcher as Watcher
from ._run import run as run
from ._schema import SCHEMA as SCHEMA
from ._schema import SCHEMA_VERSION as SCHEMA_VERSION
from ._schema import TIMING as TIMING
from ._solve import Solved as Solved
from ._solve import solve as solve
from ._store import Store as Store
from ._store import open_store as open_store
from ._store import read_cells as read_cells
from ._store import read_settings as read_settings
from ._verify import verify_store as verify_store

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "TIMING",
    "Matrix",
    "Outcome",
    "Settings",
    "Solved",
    "Store",
    "Watcher",
    "buckets",
    "open_store",
    "plan",
    "read_cells",
    "read_settings",
    "run",
    "solve",
    "verify_store",
    "write_report",
]
