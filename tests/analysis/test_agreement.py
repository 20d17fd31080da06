"""Agreement against counts of pairs in plain Python, scikit-learn, and the examples of the literature."""

import itertools
import sys
import warnings

import numpy as np
import pytest

from keras_het.analysis import agreement

pytestmark = pytest.mark.once

# Krippendorff 2011, "Computing Krippendorff's alpha-reliability", example C: twelve units, four observers.
OBSERVERS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
# The example of the same quantity in the encyclopedias: fifteen units, three coders.
CODERS = (".....34121133.3", "1.213343.......", "..21344.21133.4")


def read(rows):
    rows = [row.replace(" ", "") for row in rows]
    return np.array([[-1 if label == "." else int(label) for label in unit] for unit in zip(*rows, strict=True)])


def random_votes(seed, examples=40, annotators=5, size=4, share=0.6):
    rng = np.random.default_rng(seed)
    true = rng.integers(size, size=(examples, 1))
    labels = np.where(rng.random((examples, annotators)) < 0.6, true, rng.integers(size, size=(examples, annotators)))
    return np.where(rng.random(labels.shape) < share, labels, -1)


def slow_alpha(labels):
    """1 - observed / expected disagreement, by all ordered pairs of labels."""
    units = [[label for label in row if label >= 0] for row in labels.tolist()]
    units = [unit for unit in units if len(unit) > 1]
    values = [label for unit in units for label in unit]
    observed = sum((a != b) / (len(unit) - 1) for unit in units for a, b in itertools.permutations(unit, 2)) / len(
        values
    )
    expected = sum(a != b for a, b in itertools.permutations(values, 2)) / (len(values) * (len(values) - 1))
    return 1.0 - observed / expected


@pytest.mark.parametrize(("rows", "alpha"), [(OBSERVERS, 0.743), (CODERS, 0.691)])
def test_the_examples_of_the_literature(rows, alpha):
    assert agreement(read(rows)).alpha == pytest.approx(alpha, abs=5e-4)


@pytest.mark.parametrize("seed", range(6))
def test_against_pairs_and_scikit_learn(seed):
    from sklearn.metrics import cohen_kappa_score

    labels = random_votes(seed)
    labels[:, 4] = np.where(np.arange(40) < 3, labels[:, 4], -1)
    found = agreement(labels, class_names={k: f"class {k}" for k in range(4)}, count=99)
    assert found.alpha == pytest.approx(slow_alpha(labels))
    assert found.num_examples == np.sum((labels >= 0).sum(axis=1) > 1)
    for m, k in itertools.combinations(range(5), 2):
        both = labels[(labels[:, m] >= 0) & (labels[:, k] >= 0)]
        assert found.common[m, k] == found.common[k, m] == len(both)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one class
            kappa = cohen_kappa_score(both[:, m], both[:, k], labels=range(4)) if len(both) else np.nan
        np.testing.assert_allclose([found.kappa[m, k], found.kappa[k, m]], kappa)
    assert np.isnan(found.kappa.diagonal()).all()
    for pair in found.pairs:
        differ = [tuple(row[list(pair.annotators)]) for row in labels if (row[list(pair.annotators)] >= 0).all()]
        times = {both: differ.count(both) for both in differ if both[0] != both[1]}
        assert pair.times == max(times.values(), default=0)
        assert pair.labels is None or times[tuple(int(name[-1]) for name in pair.labels)] == pair.times
    ends = [pair.interval[1] for pair in found.pairs]
    assert ends == sorted(ends)
    assert len(ends) == np.isfinite(found.kappa).sum() // 2


@pytest.mark.planted
def test_a_planted_alpha_that_forgets_the_size_of_the_sample_is_caught(monkeypatch):
    module = sys.modules["keras_het.analysis.agreement"]  # in the package the function has its name
    plain = module._alpha
    monkeypatch.setattr(module, "_alpha", lambda kinds, times: plain(kinds, 1000 * times))
    with pytest.raises(AssertionError):
        test_the_examples_of_the_literature(OBSERVERS, 0.743)


def test_wilsons_interval_by_its_quadratic_equation():
    """Its ends are the p0 with |p - p0| = z sqrt(p0 (1 - p0) / n)."""
    found = agreement(random_votes(1))
    chance = found.kappa * 0 + 1.0  # nan where there is none
    labels = random_votes(1)
    for m, k in itertools.combinations(range(5), 2):
        both = labels[(labels[:, m] >= 0) & (labels[:, k] >= 0)]
        p = np.mean(both[:, m] == both[:, k])
        chance[m, k] = sum(np.mean(both[:, m] == c) * np.mean(both[:, k] == c) for c in range(4))
        for end in found.intervals[m, k] * (1 - chance[m, k]) + chance[m, k]:
            assert abs(p - end) == pytest.approx(1.959964 * np.sqrt(end * (1 - end) / len(both)))


@pytest.mark.statistical
def test_intervals_hold_alpha_and_kappa(base_seed):
    """Of three annotators of an accuracy of .8, with 60 examples: in four fifths of 40 draws. No seed of 100 fails."""
    prior, accuracy, held = np.array([0.5, 0.3, 0.2]), 0.8, []
    transition = np.where(np.eye(3, dtype=bool), accuracy, (1 - accuracy) / 2)
    shares = prior @ transition
    chance, agree = np.sum(shares**2), np.einsum("i,ij,ij->", prior, transition, transition)
    for seed in range(40 * base_seed, 40 * base_seed + 40):
        rng = np.random.default_rng([seed, 7])
        true = rng.choice(3, size=60, p=prior)
        labels = (transition.cumsum(axis=1)[true][:, None] < rng.random((60, 3, 1))).sum(axis=-1)
        found = agreement(np.where(rng.random((60, 3)) < 0.8, labels, -1), seed=seed)
        ends = np.array([found.interval, found.intervals[0, 1]])
        held.append((ends[:, 0] <= (agree - chance) / (1 - chance)) & ((agree - chance) / (1 - chance) <= ends[:, 1]))
    assert (np.mean(held, axis=0) > 0.8).all()


def test_it_prints_who_differs_on_what():
    labels = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, 1], [-1, 0, -1]])
    found = agreement(labels, ["Ann", "Bob", "Cyn"], ["cat", "dog"], count=2)
    low, high = found.interval
    first = f"Krippendorff's alpha {found.alpha:.2f}, 95% interval {low:.2f} to {high:.2f}"
    assert str(found).splitlines() == [
        f"{first}, by 4 examples of several labels",
        "first  second  common  kappa   95% interval  first says  second says  times",
        "Ann    Cyn          4  -0.50  -0.91 to 0.40  cat         dog              2",
        "Bob    Cyn          4  -0.50  -0.91 to 0.40  cat         dog              2",
    ]
    assert str(agreement(labels[:, :2], count=1)).splitlines()[2].split()[-1] == "0"  # the two never differ
    assert found._repr_html_().startswith("<p>Krippendorff&#x27;s alpha")
    pytest.importorskip("pandas")
    assert found.to_frame().loc[0, ["first", "second", "common", "times"]].tolist() == ["Ann", "Cyn", 4, 2]


def test_labels_of_one_class_say_nothing():
    found = agreement(np.zeros((4, 3), int))
    assert np.isnan([found.alpha, *found.interval, *found.kappa.ravel()]).all()
    assert found.pairs == ()


def test_one_seed_gives_one_interval_and_the_order_of_examples_does_not_matter():
    labels = random_votes(3)
    first, again = agreement(labels), agreement(labels[::-1])
    assert (first.interval, first.alpha) == (again.interval, again.alpha)
    assert agreement(labels, seed=1).interval != first.interval


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: agreement([[0, -1], [-1, 1]]),
            "`labels` must have two labels of at least one example. Received: 2, one of each",
        ),
        (
            lambda: agreement([[0], [1]]),
            "`labels` must have two labels of at least one example. Received: 2, one of each",
        ),
        (lambda: agreement([[0, 2]], class_names="abc"), "`class_names` must be a sequence"),
        (
            lambda: agreement([[0, 2]], class_names=["a", "b"]),
            "`labels` must be in [0, 2), or -1 where missing. Received: 2 at [0, 1]",
        ),
        (
            lambda: agreement([[0, 1]], names=["a"]),
            "`names` must have a name for each of the 2 annotators. Received: 1",
        ),
        (
            lambda: agreement([[0.5, 1]]),
            "`labels` must be integers of shape (N, M). Received: shape (1, 2), dtype float64",
        ),
        (lambda: agreement([[0, 1]], count=-1), "`count` must be an integer at least 0. Received: count=-1"),
        (lambda: agreement([[0, 1]], seed=-1), "`seed` must be an integer at least 0"),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)
