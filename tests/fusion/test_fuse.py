"""Exact fusion: known minima, agreement with the sum, and what must not change the answer."""

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlab as al
from attnlab.fusion import ExactHead, exact_sigmoid_sum, from_keys, fuse


def steps(*sizes):
    return [ExactHead([[0], [a]], [1, 1], [0, 1]) for a in sizes]


def along(*directions):
    return [ExactHead([[0] * len(u), list(u)], [1, 1], [0, 1]) for u in directions]


def shifts(d):
    return [ExactHead([[0], [1]], [1, j + 1], [0, 1]) for j in range(d)]


def uniform(radices):
    """Uniform heads with keys M_h {0..n_h-1}, M_h the product of the n before, and generic values."""
    heads, m = [], 1
    for h, n in enumerate(radices):
        heads.append(ExactHead([[m * i] for i in range(n)], [1] * n, [(i + 1) ** (h + 2) for i in range(n)]))
        m *= n
    return heads


def generic(number, atoms, rng):
    """Heads whose key differences are linearly independent."""
    dim = number * (atoms - 1)
    keys = [[rng.integers(-9, 10, dim).tolist() for _ in range(atoms)] for _ in range(number)]
    numbers = [rng.integers(1, 10, atoms).tolist() for _ in range(2 * number)]
    return from_keys(keys, numbers[:number], numbers[number:])


MINIMA = [
    (steps(1, 1), 2), (steps(1, 1, 1, 1), 2), (steps(1, 2), 4), (steps(1, 3), 4), (steps(2, 3), 4),
    (steps(1, 1, 2), 4), (steps(1, 2, 3), 7), (steps(1, 2, 4), 8), (steps(1, 3, 5), 8),
    (steps(1, 3, 4, 5), 12), (along((1, 0), (0, 1), (1, 1)), 7), (along((1, 0), (0, 1), (1, -1)), 7),
    (along((1, 0), (0, 1), (1, 1), (1, -1)), 12), (along((1, 0), (1, 0), (0, 1)), 4),
    (uniform([2, 3]), 6), (uniform([3, 2, 2]), 12),
]  # fmt: skip


@pytest.mark.parametrize(("heads", "atoms"), MINIMA)
def test_known_minima_are_closed(heads, atoms):
    result = fuse(heads)
    assert result.closed
    assert result.lower == result.upper == result.head.num_atoms == atoms
    assert result.certificate.verify().holds
    _assert_equal(heads, result.head)


def test_the_plain_product_is_not_always_the_minimum():
    """sum of sigma(a q), a dividing 6: all poles are 12th roots of unity, so 12 uniform weights do."""
    result = fuse(steps(1, 2, 3, 6))
    assert (result.lower, result.upper, result.product) == (12, 12, 13)
    assert set(result.head.weights) == {1}


@pytest.mark.parametrize(("n", "product"), [(6, 13), (12, 29), (24, 61), (28, 57)])
def test_divisors_of_perfect_and_abundant_numbers(n, product):
    """2n atoms of equal weight carry sum of c_a sigma(a q) over a | n; the product has s(n) + 1 and more."""
    divisors = [a for a in range(1, n + 1) if n % a == 0]
    heads = [ExactHead([[0], [a]], [1, 1], [0, i + 1]) for i, a in enumerate(divisors)]
    result = fuse(heads, time_limit=0.2)
    assert result.upper <= 2 * n < result.product == product
    assert result.certificate.verify().holds


@pytest.mark.parametrize("d", range(1, 11))
def test_dyadic_chains(d):
    result = fuse(steps(*[2**j for j in range(d)]))
    assert result.lower == result.upper == 2**d
    assert result.method == ("vertices" if d == 1 else "radix")


@pytest.mark.parametrize("d", range(1, 13))
def test_shifts(d):
    result = fuse(shifts(d))
    assert result.lower == result.upper == d + 1


@pytest.mark.parametrize("d", [1, 2, 7, 13])
def test_sums_of_sigmoids_double(d):
    result = fuse(exact_sigmoid_sum(d))
    assert result.lower == result.upper == 2**d
    assert result.terms == 2 * d
    assert result.method == "vertices"


def test_generic_heads_multiply(rng):
    heads = generic(4, 3, rng)
    result = fuse(heads)
    assert result.lower == result.upper == 81
    assert fuse([*heads, ExactHead([heads[0].exponents[0]], [1], [5], heads[0].basis)]).upper == 81
    # No polynomial in the certificate is larger than one head: nothing was multiplied out.
    parts = al.certify._fusion.untext(result.certificate.lower.witness["parts"])
    assert max(len(b["denominator"]) for p in parts for b in p["blocks"]) == 3


def test_repeated_zeros_count_on_a_ray():
    """A head with binomial weights: (1 + x)^4 has a zero of multiplicity 4, so all 5 atoms are needed."""
    result = fuse([ExactHead([[i] for i in range(5)], [1, 4, 6, 4, 1], [0, 1, 5, 2, 3])])
    assert result.lower == result.upper == 5
    assert result.method == "ray"


def test_vector_values_share_one_denominator():
    heads = [ExactHead([[0], [a]], [1, 1], [[0, 0], row]) for a, row in ((1, [1, 0]), (2, [0, 1]))]
    result = fuse(heads)
    assert result.lower == result.upper == 4
    _assert_equal(heads, result.head)


def test_fused_head_agrees_with_the_sum_of_heads_in_arb(rng):
    heads = from_keys([["0", "1/3"], ["1/2", "3/4"], ["0", "1", "-1/5"]], [[1, 2], [3, 1], [1, 1, "1/7"]],
                      [[0, 1], [1, "2/3"], [1, 0, -1]])  # fmt: skip
    fused = fuse(heads, time_limit=2).head
    with flint.ctx.workprec(200):
        for q in rng.normal(size=5):
            total = sum((_in_arb(h, q) for h in heads), flint.arb(0))
            difference = abs(total - _in_arb(fused, q))
            assert difference.overlaps(flint.arb(0))
            assert difference.rad() + difference.mid() < 1e-45
    w = al.HeadSum([h.to_head() for h in heads])
    q = np.array([0.7])
    np.testing.assert_allclose(fused.to_head()(q), w(q), rtol=1e-12)


def test_keys_far_apart_stay_exact():
    """Exponents beyond machine integers, where no common factor can be divided out."""
    far = 10**30
    assert fuse(along((far, 1), (1, far))).lower == 4
    assert fuse(steps(far, 2 * far)).lower == fuse(steps(1, 2)).lower == 4
    result = fuse(steps(far, far + 1))
    assert (result.lower, result.upper, result.method) == (4, 4, "valuations")
    with pytest.raises(ValueError, match="window cannot be searched"):
        fuse(steps(far, far + 1), window=3)
    assert fuse(steps(10**5000, 10**5000 + 1)).lower == 4
    with pytest.raises(ValueError, match="4,300 digits"):
        fuse(along((10**5000, 1), (1, 10**5000)))


@pytest.mark.parametrize("weight", [2**24 - 3, 2**61 - 1, 2**63 - 25, (2**61 - 1) * (2**63 - 25)])
def test_weights_that_vanish_modulo_the_primes_in_use(weight):
    result = fuse([ExactHead([[0], [1]], [weight, w], [0, 1]) for w in (weight, 1)], time_limit=5)
    assert result.lower <= 3 == result.upper
    assert result.closed or weight == (2**61 - 1) * (2**63 - 25)
    assert result.certificate.verify().holds


def test_float_keys_in_few_dimensions_give_a_bracket(rng):
    numbers = rng.normal(size=(3, 2, 3))
    heads = from_keys(
        list(rng.normal(size=(2, 3, 2))), list(abs(numbers[0])), list(numbers[1]), exact_floats=True
    )
    result = fuse(heads, time_limit=2)
    assert result.method == "limits"
    assert 2 <= result.lower <= result.upper == 9
    assert result.certificate.verify().holds


def test_long_weights_stay_exact():
    big = 10**6000 + 1
    heads = [ExactHead([[0], [1]], [big, 1], [0, Fraction(1, big)]), ExactHead([[0], [1]], [1, big], [0, 1])]
    result = fuse(heads)
    assert result.lower == result.upper == 3
    assert result.certificate.verify().holds


def test_repr_and_folder_of_certificates(tmp_path):
    result = fuse(steps(1, 2))
    assert repr(result) == "Fusion(exactly 4 atoms by radix; 4 terms, plain product 4)"
    paths = result.certificate.save(tmp_path / "new" / "folder")
    for path in paths:
        assert al.certify.load(path).verify().holds
    assert "at least 4 atoms" in result.certificate.verify().statement


# ---------------------------------------------------------------------------- invariances

small_heads = st.integers(1, 2).flatmap(
    lambda dim: st.lists(
        st.lists(
            st.tuples(st.tuples(*[st.integers(-2, 2)] * dim), st.integers(1, 3), st.integers(-2, 2)),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=2,
    )
)


def build(atoms, shift=0, factor=1):
    return [
        ExactHead(
            [[factor * x + shift for x in e] for e, _, _ in a], [w for _, w, _ in a], [v for *_, v in a]
        )
        for a in atoms
    ]


@settings(max_examples=60)
@given(small_heads, st.lists(st.fractions(min_value="1/9", max_value=9), min_size=2, max_size=2))
def test_fusion_equals_the_sum_at_rational_points(atoms, point):
    heads = build(atoms)
    result = fuse(heads, time_limit=0.5)
    assert result.lower <= result.upper <= result.product
    assert result.certificate.verify().holds
    x = point[: len(heads[0].exponents[0])]
    assert result.head.at(x) == sum(h.at(x) for h in heads)


@settings(max_examples=40)
@given(small_heads, st.randoms(use_true_random=False), st.integers(-5, 5), st.integers(2, 4))
def test_order_shifts_and_refinement_change_nothing(atoms, random, shift, factor):
    before = fuse(build(atoms), time_limit=0.5)
    shuffled = [random.sample(a, len(a)) for a in random.sample(atoms, len(atoms))]
    for heads in (build(shuffled), build(atoms, shift=shift), build(atoms, factor=factor)):
        after = fuse(heads, time_limit=0.5)
        assert max(before.lower, after.lower) <= min(before.upper, after.upper)
        if before.closed and after.closed:
            assert before.lower == after.lower
        assert before.product == after.product


@pytest.mark.parametrize(("heads", "atoms"), MINIMA[6:10])
def test_unimodular_changes_and_lattice_refinements(heads, atoms):
    """Keys under an invertible integer matrix, embedded in more dimensions, scaled, shifted."""
    moved = [
        ExactHead([[7 + 3 * e, -6 * e, 0] for (e,) in h.exponents], h.weights, h.values) for h in heads[::-1]
    ]
    result = fuse(moved)
    assert result.lower == result.upper == atoms


@pytest.mark.parametrize("n", [1, 2])
def test_a_head_alone_and_its_negative(n):
    """W - W needs one atom; n copies of one head need no more than the head."""
    head = ExactHead([[0, 0], [1, 0], [0, 1]], [1, 2, 3], [0, 1, 5])
    minus = ExactHead(head.exponents, head.weights, [-v for v in head.values])
    assert fuse([head] * n + [minus] * n).upper == 1
    assert fuse([head] * n).lower == fuse([head] * n).upper == 3


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("heads", "sentence"),
    [
        ([], "heads is empty"),
        ("01", "must be a list of ExactHead"),
        (3, "must be a list of ExactHead"),
        ([1], "heads\\[0\\] is a int"),
        ([*steps(1), *along((1, 0))], "heads\\[1\\] has 2 variables"),
        ([*steps(1), ExactHead([[0], [1]], [1, 1], [[0], [1]])], "value_shape"),
        ([*steps(1), ExactHead([[0], [1]], [1, 1], [0, 1], [[2]])], "bases"),
        ([al.Head([[0.0], [1.0]], [0.0, 1.0])], "from_keys"),
        (exact_sigmoid_sum(23), "more than the 1,050,000"),
    ],
)
def test_bad_heads_are_named(heads, sentence):
    with pytest.raises(ValueError, match=sentence):
        fuse(heads)


@pytest.mark.parametrize("limit", [0, -1, "1", True, float("nan"), None])
def test_bad_time_limits_are_named(limit):
    with pytest.raises(ValueError, match="time_limit"):
        fuse(steps(1), time_limit=limit)


def _assert_equal(heads, fused):
    for i in range(3):
        x = [Fraction(2 + 3 * i + j, 5 + j) for j in range(len(fused.exponents[0]))]
        values = [h.at(x) for h in heads]
        expected = tuple(map(sum, zip(*values, strict=True))) if fused.value_shape else sum(values)
        assert fused.at(x) == expected


def _in_arb(head, q):
    masses = []
    for key, w in zip(head.exponents, head.weights, strict=True):
        k = sum((e * b for e, (b,) in zip(key, head.basis, strict=True)), Fraction(0))
        height = flint.arb(float(q)) * flint.arb(flint.fmpq(k.numerator, k.denominator))
        masses.append(height.exp() * flint.arb(flint.fmpq(w.numerator, w.denominator)))
    values = [flint.arb(flint.fmpq(v.numerator, v.denominator)) for v in head.values]
    return sum((m * v for m, v in zip(masses, values, strict=True)), flint.arb(0)) / sum(masses, flint.arb(0))
