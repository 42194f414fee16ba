"""How much search to spend."""

from dataclasses import dataclass
from typing import Literal

EffortName = Literal["fast", "normal", "thorough"]


@dataclass(frozen=True)
class Effort:
    """Descent steps of the lower and upper searches, starts per rank, and which extras to run.

    ``polish`` solves the final linear programmes; ``summing`` tries the 2-summing bound as well.
    """

    lower_steps: int
    upper_steps: int
    starts: int
    polish: bool
    summing: bool


EFFORTS: dict[str, Effort] = {
    "fast": Effort(lower_steps=600, upper_steps=800, starts=2, polish=False, summing=False),
    "normal": Effort(lower_steps=2500, upper_steps=3000, starts=4, polish=False, summing=False),
    "thorough": Effort(lower_steps=6000, upper_steps=12000, starts=8, polish=True, summing=True),
}


def effort_named(name: str) -> Effort:
    """Raises ValueError for an unknown name."""
    if name not in EFFORTS:
        raise ValueError(f"effort must be one of {', '.join(EFFORTS)}, got {name!r}.")
    return EFFORTS[name]
