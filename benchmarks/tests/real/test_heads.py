"""Tables of the last layers on real labels, by hand."""

import keras
import pytest

from benchmarks.real import heads


def training(row, seed, rate, *accuracies):
    """Returns the line of a training; the noisy accuracy of an epoch is its accuracy less a tenth."""
    epochs = [
        {"epoch": 1 + place, "noisy accuracy": each - 0.1, "accuracy": each, "nll": 1.0 - each}
        for place, each in enumerate(accuracies)
    ]
    return {"task": "a", "row": row, "seed": seed, "rate": rate, "epochs": epochs, "noise": 0.5, "processor": 2.0}


RECORDS = [
    *(training("Dense", seed, rate, 0.3, 0.2) for seed in (0, 1) for rate in (0.1, 0.2)),
    *(training("Dense from zeros", seed, 0.1, 0.6, 0.4) for seed in (0, 1)),
    *(training("Dense from zeros", seed, 0.2, 0.5, 0.45) for seed in (0, 1)),
    training("full from zeros", 0, 0.1, 0.7, 0.5),
    training("full from zeros", 1, 0.2, 0.68, 0.65),
    training(heads.LOGISTIC, 0, 0.01, 0.55),
    training(heads.LOGISTIC, 0, 0.1, 0.5),
]


def by_name(rule):
    head, *rows = heads.table(RECORDS, rule)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_a_row_has_the_rate_and_the_epoch_with_the_best_noisy_accuracy_beside_the_better_start_of_dense():
    rows = by_name(heads.best)
    assert rows["Dense from zeros"]["accuracy"] == "0.600 +- 0.000"
    assert rows["Dense"]["points over the better Dense"] == "**-30.0 +- 0.0**"
    assert rows["full from zeros"]["accuracy"] == "0.690 +- 0.010"
    assert rows["full from zeros"]["points over the better Dense"] == "**+9.0 +- 1.0**"
    assert rows["full from zeros"]["rates or C"] == "0.1, 0.2"
    assert rows[heads.LOGISTIC]["points over the better Dense"] == "-5.0"


def test_the_last_epoch_has_the_rate_with_the_best_noisy_accuracy_there():
    rows = by_name(heads.last)
    assert rows["Dense from zeros"]["accuracy"] == "0.450 +- 0.000"
    assert rows["Dense from zeros"]["rates or C"] == "0.2"
    assert rows["full from zeros"]["points over the better Dense"] == "+12.5 +- 7.5"


def test_the_curves_have_the_mean_of_the_seeds_after_each_epoch():
    head, *rows = heads.by_epoch(RECORDS, "accuracy")
    assert head == ["last layer", "rate or C", "1", "2"]
    assert ["Dense from zeros", "0.1", "0.600", "0.400"] in rows
    assert not [row for row in rows if row[0] == heads.LOGISTIC]


@pytest.mark.parametrize("shape", [(28, 28), (32, 32, 3)])
def test_the_network_from_scratch_takes_bytes_of_grey_and_of_colours(shape):
    assert heads.body("scratch", keras.Input(shape, dtype="uint8")).shape == (None, 128)
