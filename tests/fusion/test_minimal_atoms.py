"""minimal_atoms: brackets that close, proofs of both ends, and bad input."""

import math

import jax
import numpy as np
import pytest

from attnlab import Head, sigmoid_sum
from attnlab.fusion import Box, minimal_atoms
from attnlab.fusion._function import Function
from attnlab.fusion._line_bound import best_lines, line_certificate
from attnlab.heads import sigmoids


@pytest.mark.parametrize(("eps", "atoms", "most"), [(0.19, 4, None), (0.2, 2, 3), (1.0, 1, 1)])
def test_two_sigmoids_on_a_finite_box(eps, atoms, most):
    """The separation on a finite box: four atoms are needed (and enough) within 0.19 on |q| <= 4."""
    found = minimal_atoms(sigmoid_sum(2), eps, Box(4.0, 2), key=0, starts=8, max_atoms=most)
    assert found.upper == atoms
    assert found.lower <= atoms
    assert found.interval is not None
    assert found.interval.hi <= eps
    assert found.upper_certificate is found.interval.certificate
    assert found.upper_certificate is not None
    assert found.upper_certificate.verify()
    if atoms != 1:
        assert found.lower_certificate is not None
        assert found.lower_certificate.verify()
    assert found.closed == (eps != 1.0 or found.lower == 1)
    errors = [c.error for c in found.curve]
    assert errors == sorted(errors, reverse=True)
    assert all(c.starts == 8 for c in found.curve if c.num_atoms < 4)


def test_everywhere():
    found = minimal_atoms(sigmoid_sum(3), 0.49, Box(math.inf, 3))
    assert found.closed
    assert found.lower == 8
    assert found.lower_method == "robust"
    assert found.lower_certificate is not None
    assert found.lower_certificate.verify()
    assert found.upper_certificate is not None
    assert found.upper_certificate.kind == "fusion-upper"
    assert found.upper_certificate.verify()
    assert found.head is not None
    assert found.head.num_atoms == 8
    assert minimal_atoms(sigmoid_sum(2), 0.5, Box(math.inf, 2)).lower == 2


def test_everywhere_with_weights_that_are_not_rational():
    """Weights e^b have no exact form: the product is proved by algebra alone, the lower end as before."""
    found = minimal_atoms(sigmoids([[1.0, 0.0], [0.0, 2.0]], [0.5, 1.0]), 0.4, Box(math.inf, 2))
    assert found.closed
    assert (found.lower, found.upper_certificate) == (4, None)


def test_a_callable_has_no_proved_ends():
    found = minimal_atoms(lambda q: jax.nn.sigmoid(q).sum(), 0.1, Box(2.0, 1), starts=8, max_atoms=2)
    assert found.upper == 2
    assert not found.upper_certified
    assert not found.closed
    assert "estimate" in repr(found)


def test_no_upper_end():
    found = minimal_atoms(sigmoid_sum(2), 0.01, Box(4.0, 2), starts=8, max_atoms=3)
    assert found.upper is None
    assert "no upper end" in repr(found)


def test_one_line_reaches_what_three_atoms_reach():
    """d = 2: the swing of a bump is the best error of three atoms, to the digits of the search."""
    lines = best_lines(Function(sigmoid_sum(2), Box(4.0, 2)), 3, Box(4.0, 2), pair=True)
    assert lines.atoms == 4
    assert 0.1955 < lines.swing < 0.19609


def test_shifts_on_one_line_pass_no_level_twice():
    """A monotone target is crossed once on every line: two atoms is all this bound can say."""
    target = Function(sigmoids([[1.0], [1.0]], [0.0, 3.0]), Box(6.0, 1))
    certificate = line_certificate(target, 0.01, Box(6.0, 1))
    assert certificate is not None
    assert certificate.claim["atoms"] == 2


def test_bumps_of_one_head_count_its_atoms():
    """A head whose values alternate along a line needs all its atoms."""
    head = Head(np.arange(5.0)[:, None] * 3, [0.0, 1.0, 0.0, 1.0, 0.0], -1.5 * np.arange(5.0) ** 2)
    certificate = line_certificate(Function(head, Box(12.0, 1)), 0.05, Box(12.0, 1))
    assert certificate is not None
    assert certificate.claim["atoms"] == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps": 0.0}, "eps"),
        ({"eps": float("nan")}, "eps"),
        ({"eps": math.inf}, "eps"),
        ({"max_atoms": 0}, "max_atoms"),
        ({"starts": 0}, "starts"),
        ({"box": Box(1.0, 3)}, "dimension"),
        ({"target": lambda q: q.sum(), "box": Box(math.inf, 2)}, "infinite radius"),
    ],
)
def test_bad_input(change, message):
    arguments = {"target": sigmoid_sum(2), "eps": 0.3, "box": Box(1.0, 2), "starts": 4} | change
    with pytest.raises(ValueError, match=message):
        minimal_atoms(**arguments)
