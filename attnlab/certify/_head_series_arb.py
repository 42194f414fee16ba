"""The enclosures of ``_head_series`` in Arb balls, one box at a time: slow, and free of assumptions on
``exp``. The mathematics is the same; here every rounding error is in the balls."""

import math
from functools import reduce

import flint
import numpy as np
from flint import arb

from ._balls import ARB_BITS, down, up
from ._head_series import HeadSeries


class ArbHead:
    """One scalar head; ``plain`` supplies the tables of exponents and the order."""

    def __init__(self, keys: np.ndarray, values: np.ndarray, logs: np.ndarray, order: int):
        self.plain = HeadSeries(keys, values, logs, order)
        with flint.ctx.workprec(ARB_BITS):
            used = keys[:, self.plain.active]
            reference = [arb(float(x)) for x in 0.5 * (used.max(0) + used.min(0))] if used.size else []
            rows = [[arb(float(x)) for x in row] for row in used]
            self.keys = [[x - y for x, y in zip(row, reference, strict=True)] for row in rows]
            self.logs = [arb(float(x)) for x in logs]
            self.middle = arb(self.plain.middle)
            self.values = [arb(float(v)) - self.middle for v in values]
            self.half_range = _largest([abs(v) for v in self.values])
            scale = [arb(float(f)) for f in self.plain.terms.factorials]
            self.monomials = [
                [m / f for m, f in zip(self._monomials(key), scale, strict=True)] for key in self.keys
            ]

    def _monomials(self, x: list[arb]) -> list[arb]:
        out = [arb(1)]
        for parent, variable in self.plain.terms.parents:
            out.append(out[parent] * x[variable])
        return out

    def _place(self, centre: np.ndarray, half: np.ndarray) -> tuple[list[arb], list[arb], list[arb]]:
        c = [arb(float(x)) for x in centre[self.plain.active]]
        r = [arb(float(x)) for x in half[self.plain.active]]
        z = [
            sum((k * x for k, x in zip(key, c, strict=True)), b)
            for key, b in zip(self.keys, self.logs, strict=True)
        ]
        top = max(z, key=float)
        s = [sum((abs(k) * x for k, x in zip(key, r, strict=True)), arb(0)) for key in self.keys]
        return [x - top for x in z], s, r

    def ranges(self, centre: np.ndarray, half: np.ndarray) -> tuple[arb, arb]:
        """Bounds on the head over one box: interval softmax over all levels."""
        z, s, _ = self._place(centre, half)
        if not _largest(s) < 300:
            return self.middle - self.half_range, self.middle + self.half_range
        plus = [(a + b).exp() for a, b in zip(z, s, strict=True)]
        minus = [(a - b).exp() for a, b in zip(z, s, strict=True)]
        falling = self.plain.falling.tolist()
        high = _best_mean(plus, minus, self.values, falling)
        low = -_best_mean(plus, minus, [-v for v in self.values], falling[::-1])
        return self.middle + low, self.middle + high

    def polynomial(self, centre: np.ndarray, half: np.ndarray) -> tuple[list[arb], arb]:
        """Taylor coefficients in all variables, and a bound on the remainder."""
        z, s, r = self._place(centre, half)
        p = [x.exp() for x in z]
        scale = self._monomials(r)
        weighted = [x * v for x, v in zip(p, self.values, strict=True)]
        below = _table_product(p, self.monomials, scale)
        above = _table_product(weighted, self.monomials, scale)
        quotient = [above[0] / below[0]]
        for row, (b, c) in enumerate(self.plain.terms.pairs[1:], start=1):
            inner = sum((below[i] * quotient[j] for i, j in zip(b.tolist(), c.tolist(), strict=True)), arb(0))
            quotient.append((above[row] - inner) / below[0])
        remainder = self._remainder(p, s, below, quotient)
        full = [arb(0)] * self.plain.size
        for row, value in zip(self.plain.rows.tolist(), quotient, strict=True):
            full[row] = value
        full[0] += self.middle
        return full, remainder

    def _remainder(self, p: list[arb], s: list[arb], below: list[arb], quotient: list[arb]) -> arb:
        """What the quotient leaves out on the box."""
        order = self.plain.terms.order
        tail = [x * t ** (order + 1) * t.exp() / math.factorial(order + 1) for x, t in zip(p, s, strict=True)]
        degrees = self.plain.terms.table.sum(1).tolist()
        norms_below, norms = [arb(0)] * (order + 1), [arb(0)] * (order + 1)
        for g, x, y in zip(degrees, below, quotient, strict=True):
            norms_below[g] += abs(x)
            norms[g] += abs(y)
        beyond = sum((abs(v - quotient[0]) * t for v, t in zip(self.values, tail, strict=True)), arb(0))
        beyond += sum(tail, arb(0)) * sum(norms[1:], arb(0))
        for degree in range(1, order + 1):
            beyond += norms[degree] * sum(norms_below[order + 1 - degree :], arb(0))
        return beyond / sum((x * (-t).exp() for x, t in zip(p, s, strict=True)), arb(0))


def arb_bounds(
    parts: list[tuple[float, ArbHead]], terms, centre: np.ndarray, half: np.ndarray, widest: float
) -> tuple[float, float]:
    """Bounds on the signed sum of heads over one box."""
    with flint.ctx.workprec(ARB_BITS):
        low, high = arb(0), arb(0)
        for sign, head in parts:
            a, b = head.ranges(centre, half)
            low, high = (low + a, high + b) if sign > 0 else (low - b, high - a)
        spread = max(float((np.abs(h.plain.keys) @ half[h.plain.active]).max(initial=0.0)) for _, h in parts)
        ends = [(down(float(low.lower())), up(float(high.upper())))]
        if spread < widest:
            total, error = [arb(0)] * len(terms.table), arb(0)
            for sign, head in parts:
                coefficients, remainder = head.polynomial(centre, half)
                total = [x + (y if sign > 0 else -y) for x, y in zip(total, coefficients, strict=True)]
                error += remainder
            ends.append(_range(terms.table, total, error))
        return max(x for x, _ in ends), min(y for _, y in ends)


def _range(table: np.ndarray, coefficients: list[arb], error: arb) -> tuple[float, float]:
    degrees = table.sum(1).tolist()
    rest = sum((abs(c) for c, g in zip(coefficients, degrees, strict=True) if g >= 3), error)
    low, high = coefficients[0] - rest, coefficients[0] + rest
    for j in range(table.shape[1]):
        a, b, mixed = arb(0), arb(0), arb(0)
        for row, c, g in zip(table.tolist(), coefficients, degrees, strict=True):
            if g == 1 and row[j] == 1:
                a = c
            elif g == 2 and row[j] == 2:
                b = c
            elif g == 2 and row[j] == 1:
                mixed += abs(c) / 2
        high += _peak(abs(a), b + mixed)
        low -= _peak(abs(a), mixed - b)
    return down(float(low.lower())), up(float(high.upper()))


def _peak(a: arb, b: arb) -> arb:
    """A bound on max over |y| <= 1 of a y + b y^2, a >= 0."""
    # Undecided comparisons are False in Arb; each line is valid whenever it is reached, because for
    # b < 0 the interior formula is never below a + b.
    if b < 0 and not -2 * b < a:
        return -a * a / (4 * b)
    return a + b if b < 0 or b >= 0 else a + abs(b)


def _best_mean(plus: list[arb], minus: list[arb], v: list[arb], falling: list[int]) -> arb:
    mass, total = sum(minus, arb(0)), sum((m * x for m, x in zip(minus, v, strict=True)), arb(0))
    best = None
    for i in falling:
        mass += plus[i] - minus[i]
        total += (plus[i] - minus[i]) * v[i]
        mean = (total / mass).upper()
        best = mean if best is None or mean > best else best
    assert best is not None
    return best


def _largest(balls: list[arb]) -> arb:
    return reduce(lambda x, y: x.max(y), balls).upper()


def _table_product(p: list[arb], monomials: list[list[arb]], scale: list[arb]) -> list[arb]:
    return [
        sum((x * row[t] for x, row in zip(p, monomials, strict=True)), arb(0)) * scale[t]
        for t in range(len(scale))
    ]
