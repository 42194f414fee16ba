"""Exhaustive search over supports in one variable, with linear algebra modulo a prime.

Let the sum of heads be P/Q with exponents 0..L (L the largest degree of P and Q, Q(0) != 0). A
fusion is a pair (D, N), D != 0, with N Q = P D; both are supported on the keys S of the fused head.
If S has a gap of more than L, the identity splits into two at the gap and the left part is a smaller
fusion. So a smallest S has steps of at most L, and reading positions from left to right there are
finitely many patterns with at most M atoms. At each position the coefficient of N Q - P D must
vanish: at an atom this determines N there (Q(0) is invertible) and leaves D free, at a gap it is one
linear condition per value coordinate. A pattern dies when only the zero solution is left.

A rational solution, scaled to coprime integers, stays non-zero modulo p, and its support modulo p is
no larger. So if every pattern dies modulo p, no fusion with at most M atoms exists. That is all that
is used: finding a pattern that survives modulo p proves nothing. A survivor may need an atom of
weight zero (exponents 1, 2, 3 have one with six keys), so survivors must be refuted over the
rationals before they stop a lower bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PRIME = 2**24 - 3  # sums of 2^14 products of residues fit into int64
_ENTRIES = 2**20  # numbers per array: batches are made so large, which bounds the memory


@dataclass(frozen=True)
class Outcome:
    """Result of one exhaustive search.

    Attributes:
        excluded: True if no fusion with at most M atoms exists (a proof).
        supports: keys of patterns that survived modulo the prime (no proof).
        finished: False if the budget of nodes ran out.
    """

    excluded: bool
    supports: tuple[tuple[int, ...], ...]
    finished: bool


@dataclass
class _Nodes:
    """Search nodes with equally many free parameters; ``basis`` is (nodes, free, L, 1 + p)."""

    basis: np.ndarray  # the last L values of D and N (most recent first) for each free parameter
    run: np.ndarray  # positions since the last atom
    position: np.ndarray
    support: np.ndarray  # (nodes, M), -1 where not yet used
    atoms: np.ndarray


def exclude(
    numerators: Sequence[Sequence[int]],
    denominator: Sequence[int],
    atoms: int,
    budget: int,
    find: int = 0,
) -> Outcome:
    """Whether no fusion of P/Q with at most ``atoms`` atoms exists.

    Arguments:
        numerators: coefficients of P, lowest first, one list per value coordinate.
        denominator: coefficients of Q, lowest first; ``denominator[0]`` must be non-zero mod PRIME.
        atoms: the largest number of atoms to exclude (M).
        budget: give up after this many nodes.
        find: stop after this many surviving patterns; 0 stops at the first.
    """
    length = max(len(denominator), *map(len, numerators)) - 1
    if length > 2**14:
        raise ValueError("The degrees are too large for the search.")
    q = _coefficients(denominator, length)
    ps = np.stack([_coefficients(p, length) for p in numerators])
    if q[0] == 0:
        raise ValueError("denominator[0] vanishes modulo the prime; the search proves nothing.")
    if atoms < 1:
        return Outcome(True, (), True)
    if length == 0:
        return Outcome(False, ((0,),), True)
    inverse = pow(int(q[0]), -1, PRIME)

    first = np.zeros((1, 1, length, 1 + len(ps)), dtype=np.int64)
    first[0, 0, 0] = [1, *(int(p) * inverse % PRIME for p in ps[:, 0])]
    support = np.full((1, atoms), -1, dtype=np.int64)
    support[0, 0] = 0
    one = np.ones(1, dtype=np.int64)
    pending: dict[int, list[_Nodes]] = {1: [_Nodes(first, 0 * one, one.copy(), support, one.copy())]}
    found: list[tuple[int, ...]] = []
    visited = 0
    while pending:
        free = max(pending, key=lambda r: sum(len(n.run) for n in pending[r]))
        nodes = _take(pending, free)
        visited += len(nodes.run)
        if visited > budget:
            return Outcome(False, tuple(found), False)
        done = nodes.run >= length
        if done.any():
            found += [tuple(int(s) for s in row if s >= 0) for row in nodes.support[done]]
            if len(found) > find:
                return Outcome(False, tuple(found), False)
            nodes = _select(nodes, ~done)
        conditions = _conditions(nodes.basis, ps, q)
        may = nodes.atoms < atoms
        children = [_gap(nodes, conditions)]
        if may.any():
            children.append([_atom(_select(nodes, may), conditions[may], ps[:, 0], inverse)])
        for child in (c for group in children for c in group):
            if len(child.run):
                pending.setdefault(child.basis.shape[1], []).append(child)
    return Outcome(not found, tuple(found), True)


def _conditions(basis: np.ndarray, ps: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Coefficient of N Q - P D here from earlier positions: (nodes, free, p)."""
    d, n = basis[..., 0], basis[..., 1:]
    from_n = np.einsum("nflp,l->nfp", n, q[1:])
    from_d = np.einsum("nfl,pl->nfp", d, ps[:, 1:])
    return (from_n - from_d) % PRIME


def _atom(nodes: _Nodes, conditions: np.ndarray, p0: np.ndarray, inverse: int) -> _Nodes:
    """An atom here: D is a new free parameter, N follows."""
    count, free, length, width = nodes.basis.shape
    basis = np.zeros((count, free + 1, length, width), dtype=np.int64)
    basis[:, :free, 1:] = nodes.basis[:, :, :-1]
    basis[:, :free, 0, 1:] = (PRIME - conditions) * inverse % PRIME
    basis[:, free, 0, 0] = 1
    basis[:, free, 0, 1:] = p0 * inverse % PRIME
    support = nodes.support.copy()
    support[np.arange(count), nodes.atoms] = nodes.position
    return _Nodes(basis, 0 * nodes.run, nodes.position + 1, support, nodes.atoms + 1)


def _gap(nodes: _Nodes, conditions: np.ndarray) -> list[_Nodes]:
    """No atom here: every condition must vanish, each removes at most one free parameter."""
    basis = np.zeros_like(nodes.basis)
    basis[:, :, 1:] = nodes.basis[:, :, :-1]
    moved = _Nodes(basis, nodes.run + 1, nodes.position + 1, nodes.support, nodes.atoms)
    return _eliminate(moved, conditions)


def _eliminate(nodes: _Nodes, conditions: np.ndarray) -> list[_Nodes]:
    if conditions.shape[2] == 0 or not len(nodes.run):
        return [nodes]
    values, rest = conditions[:, :, 0], conditions[:, :, 1:]
    active = (values != 0).any(axis=1)
    groups = _eliminate(_select(nodes, ~active), rest[~active])
    free = values.shape[1]
    if active.any() and free > 1:
        values, rest, chosen = values[active], rest[active], _select(nodes, active)
        rows = np.arange(len(values))
        pivot = (values != 0).argmax(axis=1)
        others = np.array([[j for j in range(free) if j != i] for i in range(free)])[pivot]
        scale = values[rows, pivot][:, None]
        ratio = values[rows[:, None], others]

        def reduce(array: np.ndarray) -> np.ndarray:
            shape = (..., *(None,) * (array.ndim - 2))
            keep = array[rows[:, None], others] * scale[shape]
            return (keep - array[rows, pivot][:, None] * ratio[shape]) % PRIME

        reduced = _Nodes(reduce(chosen.basis), chosen.run, chosen.position, chosen.support, chosen.atoms)
        groups += _eliminate(reduced, reduce(rest))
    return groups


def _select(nodes: _Nodes, mask: np.ndarray) -> _Nodes:
    return _Nodes(
        nodes.basis[mask],
        nodes.run[mask],
        nodes.position[mask],
        nodes.support[mask],
        nodes.atoms[mask],
    )


def _take(pending: dict[int, list[_Nodes]], free: int) -> _Nodes:
    """Remove a batch of nodes, the most recent first."""
    taken: list[_Nodes] = []
    while pending[free] and sum(n.basis.size for n in taken) < _ENTRIES:
        taken.append(pending[free].pop())
    nodes = _Nodes(
        *(
            np.concatenate([getattr(n, name) for n in taken])
            for name in ("basis", "run", "position", "support", "atoms")
        )
    )
    most = max(1, _ENTRIES // nodes.basis[0].size)
    if len(nodes.run) > most:
        rows = np.arange(len(nodes.run))
        pending[free].append(_select(nodes, rows >= most))
        nodes = _select(nodes, rows < most)
    if not pending[free]:
        del pending[free]
    return nodes


def _coefficients(values: Sequence[int], length: int) -> np.ndarray:
    padded = [int(v) % PRIME for v in values] + [0] * (length + 1 - len(values))
    return np.array(padded, dtype=np.int64)
