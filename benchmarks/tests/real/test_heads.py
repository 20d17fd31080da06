"""Table of the heads on real labels, by hand."""

from benchmarks.real import heads


def training(row, seed, temperature, accuracy, l2=0.0):
    """Returns the line of a training of one epoch, whose noisy accuracy is its accuracy."""
    epoch = {"noisy accuracy": accuracy, "accuracy": accuracy, "nll": 1.0}
    key = {"row": row, "seed": seed, "temperature": temperature, "l2": l2}
    return key | {"epochs": [epoch], "processor": 2.0}


def test_a_row_has_the_best_choice_of_each_seed_whose_trainings_are_all_there():
    records = [
        training("Dense", seed, temperature, (0.6 if temperature == 5.0 else 0.4) - l2, l2)
        for seed in (0, 1)
        for temperature in heads.TEMPERATURES
        for l2 in heads.PENALTIES
    ]
    records += [training("full", 0, temperature, 0.5 + temperature / 100) for temperature in heads.NOISY]
    records += [training("full", 1, 10.0, 0.9)]  # a seed that is not complete
    head, *rows = heads.table(records, "by noisy accuracy")
    found = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert found["Dense"]["accuracy"] == "0.600 +- 0.000"
    assert found[heads.UNTUNED]["accuracy - Dense's"] == "-0.200 +- 0.000"
    assert found["full"]["accuracy"] == "0.600"
    assert found["full"]["seeds"] == "1"
