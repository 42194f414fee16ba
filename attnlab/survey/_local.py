"""The engine that needs nothing: one matrix after the other in this process.

The lanes of a matrix (ranks and starts) run as one vectorised program, spread over the local devices.
"""

from collections.abc import Iterator, Sequence

from ._cells import Matrix
from ._solve import Solved, solve


def run_local(matrices: Sequence[Matrix]) -> Iterator[Solved]:
    """Results in the order of the matrices."""
    for matrix in matrices:
        yield solve(matrix)
