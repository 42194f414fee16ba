"""How much search to spend."""

from dataclasses import dataclass
from typing import Literal

EffortName = Literal["fast", "normal", "thorough"]


@dataclass(frozen=True)
class Effort:
    """Descent steps of the lower and upper searches, starts per rank, and whether to polish by LP."""

    lower_steps: int
    upper_steps: int
    starts: int
    polish: bool


EFFORTS: dict[str, Effort] = {
    "fast": Effort(lower_steps=600, upper_steps=800, starts=2, polish=False),
    "normal": Effort(lower_steps=2000, upper_steps=3000, starts=4, polish=True),
    "thorough": Effort(lower_steps=6000, upper_steps=12000, starts=8, polish=True),
}


def effort_named(name: str) -> Effort:
    """Raises ValueError for an unknown name."""
    if name not in EFFORTS:
        raise ValueError(f"effort must be one of {', '.join(EFFORTS)}, got {name!r}.")
    return EFFORTS[name]
