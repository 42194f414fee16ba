"""Identifiers: stable, different where anything that matters differs, and the only source of randomness."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab.learned import CapturedHead
from attnlab.survey import Settings, buckets, plan
from attnlab.survey._cells import cell_id

from .helpers import line_heads

SETTINGS = Settings((0.1, 0.5), version="0.1.0")


def test_identifiers_do_not_change_between_releases():
    """A store made by an earlier commit of this version must resume."""
    head = CapturedHead("model", "0" * 64, 1, 2, 3, np.array([[0.0, 1.0], [-np.inf, 2.0]], np.float32))
    (matrix,) = plan([head], [2.0], SETTINGS)
    assert matrix.search == "42b72037a9d37c0fedb082c2"
    assert matrix.id == "f295c27b4c2d7e854a9ea57e"
    assert cell_id(matrix.id, 0.1) == "ca959f3a2cfead4480892d94"
    assert matrix.seed == int(matrix.search[:12], 16)


@pytest.mark.parametrize(
    "other",
    [
        Settings((0.1,), version="0.1.0"),
        replace(SETTINGS, effort="normal"),
        replace(SETTINGS, precision="float64"),
        replace(SETTINGS, seed=1),
        replace(SETTINGS, version="0.2.0"),
    ],
)
def test_every_setting_makes_another_search(other):
    head = line_heads(1)
    assert plan(head, [1], SETTINGS)[0].search != plan(head, [1], other)[0].search


def test_keeping_certificates_and_the_order_of_tolerances_change_no_result():
    head = line_heads(1)
    for other in (replace(SETTINGS, certificates=False), replace(SETTINGS, eps=(0.5, 0.1, 0.5))):
        assert plan(head, [1], SETTINGS)[0].id == plan(head, [1], other)[0].id


@pytest.mark.parametrize(
    "change", [{"layer": 7}, {"head": 7}, {"window": 7}, {"model": "m"}, {"revision": "1"}]
)
def test_equal_matrices_share_the_search_and_not_the_cell(change):
    (head,) = line_heads(1)
    first, second = plan([head, replace(head, **change)], [1], SETTINGS)
    assert first.search == second.search
    assert first.id != second.id


def test_plan_is_the_same_in_any_order_and_takes_a_head_once():
    heads = [*line_heads(4), *line_heads(2, size=9)]
    forward, backward = plan(heads, [1, 2], SETTINGS), plan([*heads[::-1], *heads], [2, 1, 1], SETTINGS)
    assert len(forward) == 12
    assert {m.id for m in forward} == {m.id for m in backward}
    assert list(buckets(forward)) == [(8, 8), (9, 9)]
    assert len({cell_id(m.id, e) for m in forward for e in SETTINGS.eps}) == 24


def test_subject_keeps_masks():
    head = CapturedHead("m", "", 0, 0, 0, np.array([[0.1, -np.inf], [1.0, 2.0]], np.float32))
    (matrix,) = plan([head], [0.5], SETTINGS)
    assert matrix.subject().tolist() == [[float(np.float32(0.1)) / 2, -np.inf], [0.5, 1.0]]
    assert repr(matrix) == "Matrix(m 0.0, window 0, beta 0.5, 2 x 2)"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Settings(()), "eps is empty"),
        (lambda: Settings((0.1, 2.5)), "strictly between 0 and 2"),
        (lambda: Settings((0.1,), effort="slow"), "effort must be one of"),
        (lambda: Settings((0.1,), precision="float16"), "precision must be float32 or float64"),
        (lambda: plan([], [1], SETTINGS), "no head to survey"),
        (lambda: plan(line_heads(1), [], SETTINGS), "betas is empty"),
        (lambda: plan(line_heads(1), [1, -1], SETTINGS), "betas must be positive numbers, got -1"),
    ],
)
def test_bad_input_is_named(make, said):
    with pytest.raises(ValueError, match=said):
        make()
