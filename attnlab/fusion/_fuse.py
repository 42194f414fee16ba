"""From heads to a certified bracket on the number of atoms of a single equal head."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

from ..certify import Certificate, Verdict
from ..certify._fusion import (
    Block,
    HeadData,
    Ratio,
    add,
    context,
    encode_blocks,
    encode_heads,
    text,
    value_scale,
)
from ..certify._fusion_lower import terms
from ._exact import ExactHead
from ._lattice import Key
from ._lower import Lower, PartBound, lower_bound
from ._parts import Part, split
from ._upper import LARGEST, atoms, best_multiple, plain_product
from ._window import box, sparsest, usable_keys

SMALL_WINDOW = 150  # keys up to which a window is searched without being asked for


@dataclass(frozen=True)
class FusionCertificate:
    """Both ends of a bracket: ``lower`` (kind fusion-lower) and ``upper`` (kind fusion-upper)."""

    lower: Certificate
    upper: Certificate

    def verify(self) -> Verdict:
        """Recheck both ends in integers; the statement and the bound are those of the first that fails."""
        lower, upper = self.lower.verify(), self.upper.verify()
        for verdict in (lower, upper):
            if not verdict.holds:
                return verdict
        statement = f"{lower.statement} {upper.statement}"
        return Verdict(True, statement, lower.bound, min(lower.margin, upper.margin))

    def save(self, directory: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``fusion-lower.npz`` and ``fusion-upper.npz`` into a folder, made if needed."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        paths = directory / "fusion-lower.npz", directory / "fusion-upper.npz"
        self.lower.save(paths[0])
        self.upper.save(paths[1])
        return paths


@dataclass(frozen=True, repr=False)
class Fusion:
    """The least number of atoms of a single head equal to a sum of heads, as a certified bracket.

    Attributes:
        lower: no single head with fewer atoms equals the sum.
        upper: atoms of ``head``.
        head: a single head equal to the sum.
        certificate: the proofs of both ends.
        method: which bound gave ``lower``: vertices, radix, ray, exhaustive (or valuations and limits, where
            keys lie too far apart for the others), or several joined by "+" where the sum splits into
            independent parts.
        terms: head-atom terms of the sum.
        product: atoms of the plain product of the heads, equal keys merged.
        vertices: the lower end that vertices alone give.
        window: number of keys in the window that was searched for a smaller head, if one was given.
    """

    lower: int
    upper: int
    head: ExactHead
    certificate: FusionCertificate
    method: str
    terms: int
    product: int
    vertices: int
    window: int | None = None

    @property
    def closed(self) -> bool:
        """Whether both ends agree, so that the minimum is known."""
        return self.lower == self.upper

    def __repr__(self) -> str:
        size = f"exactly {self.lower}" if self.closed else f"{self.lower} to {self.upper}"
        return f"Fusion({size} atoms by {self.method}; {self.terms} terms, plain product {self.product})"


def fuse(heads: Iterable[ExactHead], window: Any = None, time_limit: float = 60) -> Fusion:
    """The single head equal to a sum of heads, and a certified bracket on the atoms any such head needs.

    W = P/Q in lowest terms; every single head equal to W has the denominator Q G for some polynomial
    G, so the Newton polytope of Q and its zeros bound the number of atoms from below [M], and every G
    for which Q G has no negative coefficient and its support contains that of P G gives a head.

    Arguments:
        heads: ``ExactHead`` objects of one dimension, one value shape and one basis.
        window: where to look for a head with fewer atoms by integer programming: an integer n for all
            keys in (0..n)^rho, or a table of integer keys (a common shift of all keys never matters, so
            a window around 0 is as good as one that starts there). Only the upper end depends on it.
        time_limit: seconds after which the searches stop with the best found; four fifths are for the
            lower end. (Reducing the sum to lowest terms and checking the certificates come on top.)

    Raises:
        ValueError: no heads, heads that do not fit together, a product too large to write out, or a
            window that cannot hold a head (the message names the least integer that can).

    [M] Matsuda, "Exact Fusion of Softmax Attention Heads Can Require Exponentially Many Atoms", 2026.

    >>> from attnlab.fusion import exact_sigmoid_sum
    >>> fuse(exact_sigmoid_sum(3))
    Fusion(exactly 8 atoms by vertices; 6 terms, plain product 8)
    """
    heads = checked_heads(heads)
    start, seconds = time.monotonic(), _seconds(time_limit)
    data = [h.data() for h in heads]
    _refuse_huge(data)
    scale = value_scale(data)
    parts = split(data, scale)
    uppers = [best_multiple(part) for part in parts]
    keys = None if window is None else _window(window, parts, uppers)
    middle, deadline = start + 0.8 * seconds, start + seconds
    found = [lower_bound(p, scale, atoms(u), middle) for p, u in zip(parts, uppers, strict=True)]
    lowers = _one_search(found)
    blocks = [
        Block(p.heads, _in_keys(p, f.head or _sparser(p, f, u, deadline)))
        for p, f, u in zip(parts, found, uppers, strict=True)
    ]
    if keys is not None:
        floor, ceiling = prod(b.atoms for b in lowers), prod(atoms(b.ratio) for b in blocks)
        better = sparsest(_reduced(parts), keys, floor, ceiling, deadline)
        if better is not None:
            blocks = [Block(tuple(range(len(heads))), better)]
    upper, head = _upper_certificate(heads, data, blocks, scale)
    certificate = FusionCertificate(_lower_certificate(data, lowers), upper)
    for verdict in (certificate.lower.verify(), certificate.upper.verify()):
        if not verdict.holds:
            raise RuntimeError(f"attnlab found a fusion that its checker refuses: {verdict.statement}")
    return Fusion(
        lower=int(certificate.lower.claim["atoms"]),
        upper=head.num_atoms,
        head=head,
        certificate=certificate,
        method="+".join(sorted({b.method for b in lowers if b.atoms > 1} or {"vertices"})),
        terms=sum(h.num_atoms for h in heads),
        product=prod(map(plain_product, parts)),
        vertices=prod(f.vertices for f in found),
        window=None if keys is None else len(keys),
    )


def _reduced(parts: Sequence[Part]) -> Ratio:
    """The sum in lowest terms, in the coordinates of the keys."""
    return add([_in_keys(part, add([b.ratio for b in part.reduced.blocks])) for part in parts])


def _window(window: Any, parts: Sequence[Part], uppers: Sequence[Ratio]) -> list[Key]:
    """The keys of the window, after checking that some head fits into it."""
    if not all(part.reduced.certain for part in parts):
        raise ValueError("window cannot be searched: the keys of these heads lie too far apart for it.")
    ratio = _reduced(parts)
    known = add([_in_keys(part, u) for part, u in zip(parts, uppers, strict=True)])
    return usable_keys(window, ratio, max(int(x) for x in known.denominator.degrees()))


def _sparser(part: Part, found: Lower, upper: Ratio, deadline: float) -> Ratio:
    """A smaller head with keys in the box of the one at hand, where both are small enough to look."""
    floor = max(found.certain.atoms, found.searched.atoms if found.searched else 0)
    widths = [int(x) for x in upper.denominator.degrees()]
    if floor >= atoms(upper) or prod(w + 1 for w in widths) > SMALL_WINDOW:
        return upper
    ratio = add([b.ratio for b in part.reduced.blocks])
    return sparsest(ratio, list(box(widths)), floor, atoms(upper), deadline) or upper


def checked_heads(heads: Any) -> list[ExactHead]:
    """The heads as a list, after checking that they can be added.

    Raises:
        ValueError: with one sentence that names what does not fit.
    """
    if isinstance(heads, ExactHead):
        heads = [heads]
    if not isinstance(heads, Iterable) or isinstance(heads, str | bytes):
        raise ValueError(f"heads must be a list of ExactHead, got {type(heads).__name__}.")
    heads = list(heads)
    if not heads:
        raise ValueError("heads is empty; give at least one ExactHead.")
    for i, head in enumerate(heads):
        if not isinstance(head, ExactHead):
            raise ValueError(
                f"heads[{i}] is a {type(head).__name__}; give ExactHead objects (from_keys makes them)."
            )
        first = heads[0]
        if len(head.exponents[0]) != len(first.exponents[0]):
            raise ValueError(
                f"heads[{i}] has {len(head.exponents[0])} variables but heads[0] has "
                f"{len(first.exponents[0])}; make both with one call of from_keys, or pad with zeros."
            )
        if head.value_shape != first.value_shape:
            raise ValueError(
                f"heads[{i}] has value_shape {head.value_shape} but heads[0] has {first.value_shape}; "
                "they must agree."
            )
        if head.basis != first.basis:
            raise ValueError(f"heads[{i}] and heads[0] have different bases; make them with one call.")
    return heads


def _one_search(found: Sequence[Lower]) -> list[PartBound]:
    """The bound of each part; exhaustive search where it gains most, because only one part may use it."""
    gains = [f.searched.atoms / f.certain.atoms if f.searched else 0.0 for f in found]
    chosen = gains.index(max(gains))
    return [f.searched if i == chosen and f.searched else f.certain for i, f in enumerate(found)]


def _seconds(time_limit: Any) -> float:
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
        raise ValueError(f"time_limit must be a positive number of seconds, got {time_limit!r}.")
    return float(time_limit)


def _refuse_huge(heads: Sequence[HeadData]) -> None:
    """Refuse sums whose product can be too large to write out."""
    product = prod(len(h.exponents) for h in heads)
    reach = [
        1
        + sum(
            max(column) - min(column)
            for column in (  # all keys lie in this box of the lattice
                [e[j] for e in h.exponents] for h in heads
            )
        )
        for j in range(len(heads[0].exponents[0]))
    ]
    if min(product, prod(reach)) > LARGEST:
        raise ValueError(
            f"The product of these heads can have {min(product, prod(reach)):,} atoms, more than the "
            f"{LARGEST:,} that fuse writes out; give fewer heads."
        )


def _lower_certificate(heads: Sequence[HeadData], bounds: Sequence[PartBound]) -> Certificate:
    return Certificate(
        kind="fusion-lower",
        claim={"atoms": prod(b.atoms for b in bounds)},
        witness={"parts": text([b.witness for b in bounds])},
        subject={"heads": encode_heads(heads)},
    )


def _upper_certificate(
    heads: Sequence[ExactHead], data: Sequence[HeadData], blocks: Sequence[Block], scale: int
) -> tuple[Certificate, ExactHead]:
    """The fused head and its certificate, back in the coordinates of the heads."""
    total = add([b.ratio for b in blocks])
    weights = terms(total.denominator)
    sums = [terms(n) for n in total.numerators]
    rows = [[Fraction(n.get(e, 0), w * scale) for n in sums] for e, w in weights.items()]
    values = rows if heads[0].value_shape else [row[0] for row in rows]
    fused = ExactHead(list(weights), list(weights.values()), values, heads[0].basis)
    certificate = Certificate(
        kind="fusion-upper",
        claim={"atoms": fused.num_atoms},
        witness={"head": encode_heads([fused.data()]), "blocks": encode_blocks(blocks)},
        subject={"heads": encode_heads(data)},
    )
    return certificate, fused


def _in_keys(part: Part, ratio: Ratio) -> Ratio:
    """A ratio in lattice coordinates, rewritten in the coordinates of the keys."""
    lattice = part.lattice
    denominator = {lattice.key(c): x for c, x in terms(ratio.denominator).items()}
    low = [min(column) for column in zip(*denominator, strict=True)]
    ctx = context(len(low))

    def moved(poly: dict[tuple[int, ...], int]) -> Any:
        return ctx.from_dict({tuple(a - b for a, b in zip(e, low, strict=True)): x for e, x in poly.items()})

    numerators = [{lattice.key(c): x for c, x in terms(n).items()} for n in ratio.numerators]
    return Ratio(tuple(map(moved, numerators)), moved(denominator))
