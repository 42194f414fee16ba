"""What verification returns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """The outcome of checking one certificate. ``bool(verdict)`` is ``verdict.holds``.

    Attributes:
        holds: whether the witness proves the claim for the subject.
        statement: one English sentence: what was proved, or why nothing was.
        bound: the number recomputed from subject and witness, rounded to the safe side (``nan``
            when no number could be computed).
        margin: how far ``bound`` is on the right side of the claim; negative when it is not.
    """

    holds: bool
    statement: str
    bound: float
    margin: float

    def __bool__(self) -> bool:
        return self.holds


def failed(reason: str, bound: float = float("nan"), margin: float = float("-inf")) -> Verdict:
    """A verdict that does not hold, with the reason as its statement."""
    return Verdict(False, reason, bound, margin)
