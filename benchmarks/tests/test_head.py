"""Benchmark of the head alone: its weights, its choice, and its verdict."""

import keras
import numpy as np
import pytest

from benchmarks.labels import head

pytestmark = pytest.mark.once


def make_line(method="Dense", seed=0, accuracy=0.5, nll=1.0):
    scores = {"accuracy": accuracy, "NLL": nll, "ECE": 0.1}
    return {"method": method, "seed": seed, "temperature": 1.5, "epoch": 5, "seconds": 1.0, **scores}


def test_initial_weights_are_those_of_the_seed_and_shared_by_the_methods():
    dense, full, other = (
        head.make_model(arguments, 5.0, seed).get_weights() for arguments, seed in ((None, 3), ({}, 3), ({}, 4))
    )
    for ours, theirs in zip(dense, full, strict=False):  # backbone and mean: the first weights of both
        np.testing.assert_array_equal(ours, theirs)
    assert np.any(full[0] != other[0])


@pytest.mark.smoke
def test_plain_head_divides_its_logits():
    x = np.random.default_rng(0).standard_normal((4, 64)).astype("float32")
    one, five = (head.make_model(None, temperature, 0).predict(x, verbose=0) for temperature in (1.0, 5.0))
    np.testing.assert_allclose(five, one / 5.0, rtol=1e-5)


def test_what_is_chosen_is_the_same_again_and_one_of_the_temperatures():
    result = head.train("full", 0, (0.1, 5.0), 10)
    assert result["temperature"] in (0.1, 5.0)
    assert result["epoch"] in (5, 10)
    again = head.train("full", 0, (0.1, 5.0), 10)
    assert {**result, "seconds": 0} == {**again, "seconds": 0}


def test_the_verdict_admits_that_the_plain_head_wins_and_when_nothing_is_clear():
    lines = [
        *(make_line("Dense", seed, 0.9, nll) for seed, nll in enumerate((0.5, 0.7))),
        *(make_line("diagonal", seed, 0.6, 0.7) for seed in (0, 1)),
        *(make_line("full", seed, 0.8, nll) for seed, nll in enumerate((0.6, 0.55))),
    ]
    accuracy, nll = head.verdict(lines)[1:3]
    assert accuracy == ["accuracy", "Dense", "full", "0.100 +- 0.000", "yes"]
    assert nll == ["NLL", "full", "Dense", "0.025 +- 0.125", "no"]
    assert head.verdict([make_line(), make_line("full")])[1][-1] == "one seed"


def test_a_row_has_the_choices_seed_by_seed():
    row = head.table([make_line(seed=0), {**make_line(seed=1, accuracy=0.7), "temperature": 15.0, "epoch": 20}])[1]
    assert row == ["Dense", "0.600 +- 0.100", "1.000 +- 0.000", "0.100 +- 0.000", "1.5, 15", "5, 20", "1.0"]


def test_the_methods_are_heads_that_can_be_made():
    for arguments in head.METHODS.values():
        assert isinstance(head.make_model(arguments, 5.0, 0), keras.Model)
