"""How many votes: against an enumeration of all annotators and labels, which draws nothing."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from keras_het.analysis import votes_needed
from keras_het.label_noise import symmetric

pytestmark = pytest.mark.once

PEOPLE = SimpleNamespace(
    prior=[0.6, 0.3, 0.1],
    transitions=np.stack([symmetric(3, 0.3), [[0.5, 0.5, 0.0], [0.1, 0.9, 0.0], [0.2, 0.2, 0.6]]]),
)
LABELS = np.array([[0, 1], [1, -1], [2, -1], [0, -1]])  # four labels of the first, one of the second


def enumerated(found, shares, count):
    """Accuracy of the most probable class and of the majority, over everything that may happen."""
    most_probable = majority = 0.0
    for who in itertools.product(range(len(shares)), repeat=count):
        for said in itertools.product(range(len(found.prior)), repeat=count):
            joint = [
                prior
                * math.prod(shares[m] * found.transitions[m][k][label] for m, label in zip(who, said, strict=True))
                for k, prior in enumerate(found.prior)
            ]
            most_probable += max(joint)
            majority += joint[max(range(len(joint)), key=lambda k: (said.count(k), -k))]
    return most_probable, majority


@pytest.mark.statistical
@pytest.mark.parametrize(("labels", "shares"), [(None, [0.5, 0.5]), (LABELS, [0.8, 0.2])])
def test_against_an_enumeration(labels, shares, base_seed):
    """Within 4.5 standard errors; by chance one of 10,000 seeds fails."""
    found = votes_needed(PEOPLE, 0.9, labels, max_votes=4, seed=base_seed)
    for count in range(1, 5):
        expected = enumerated(PEOPLE, shares, count)
        for value, error, exact in zip(
            (found.accuracy[count - 1], found.majority[count - 1]),
            (found.accuracy_error[count - 1], found.majority_error[count - 1]),
            expected,
            strict=True,
        ):
            assert abs(value - exact) < 4.5 * error < 0.02


def test_who_is_never_wrong_needs_one_vote_and_who_says_anything_never_enough():
    perfect = votes_needed(SimpleNamespace(prior=[0.5, 0.5], transitions=[np.eye(2)]), 0.99, max_votes=2)
    assert (perfect.votes, perfect.votes_of_majority) == (1, 1)
    np.testing.assert_allclose([*perfect.accuracy, *perfect.accuracy_error], [1, 1, 0, 0])
    nothing = votes_needed(SimpleNamespace(prior=[0.7, 0.3], transitions=[np.full((2, 2), 0.5)]), 0.75, max_votes=3)
    assert (nothing.votes, nothing.votes_of_majority) == (None, None)
    np.testing.assert_allclose(nothing.accuracy, 0.7)
    assert (
        str(nothing).splitlines()[-1]
        == "accuracy 0.75 needs more than 3 votes an example by T, more than 3 by majority, if T is right"
    )


def test_somebody_without_a_label_is_not_asked():
    people = SimpleNamespace(prior=[0.5, 0.5], transitions=[np.eye(2), np.full((2, 2), 0.5)])
    assert votes_needed(people, 0.99, [[0, -1], [1, -1]]).votes == 1
    assert votes_needed(people, 0.99, max_votes=6).votes == 6  # 1 - 2 ** -7 = .992


def test_the_text():
    found = votes_needed(SimpleNamespace(prior=[0.5, 0.5], transitions=[np.eye(2)]), 0.9, max_votes=1)
    assert str(found).splitlines() == [
        "votes   by T     +-  majority     +-",
        "    1  1.000  0.000     1.000  0.000",
        "accuracy 0.9 needs 1 votes an example by T, 1 by majority, if T is right",
    ]
    assert found._repr_html_().endswith("by majority, if T is right</p>")
    pytest.importorskip("pandas")
    assert found.to_frame().to_dict("list")["votes"] == [1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: votes_needed(np.eye(2), 0.9),
            "`found` must have `prior` and `transitions`, as a result of `dawid_skene` has. Received: a ndarray",
        ),
        (
            lambda: votes_needed(SimpleNamespace(prior=[0.5, 0.5], transitions=np.eye(2)), 0.9),
            "`found.transitions` must have shape (M, K, K). Received: shape (2, 2)",
        ),
        (
            lambda: votes_needed(SimpleNamespace(prior=[0.5, 0.5], transitions=PEOPLE.transitions), 0.9),
            "`found.prior` must have an entry for each of the 3 classes. Received: 2",
        ),
        (lambda: votes_needed(PEOPLE, 1.0), "`accuracy` must be a number in (0, 1). Received: accuracy=1.0"),
        (lambda: votes_needed(PEOPLE, 0.9, max_votes=0), "`max_votes` must be an integer at least 1."),
        (lambda: votes_needed(PEOPLE, 0.9, LABELS[:, :1]), "`labels` must be integers of shape (N, 2)."),
        (lambda: votes_needed(PEOPLE, 0.9, [[-1, -1]]), "`labels` must have at least one label. Received: none"),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)
