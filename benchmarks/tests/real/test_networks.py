"""Networks on an accelerator: the choice of temperature and rate, the batches, and the refusal of other trainings."""

import json
import sys

import numpy as np
import pytest

from benchmarks.real import finetune, networks


def line(row, seed, noisy, clean, nll=1.0, epochs=2, rate=0.1):
    measures = {"noisy accuracy": noisy, "noisy nll": nll, "accuracy": clean, "nll": 0.5, "ece": 0.1}
    first = measures | {"noisy accuracy": 0.0, "accuracy": 0.9}
    key = {"set": "a", "size": 10, "seed": seed, "row": row, "rate": rate}
    return key | {"elapsed": 1.0, "epochs": [first] * (epochs - 1) + [measures]}


RECORDS = [
    line("Dense", 0, 0.5, 0.7),
    line("Dense, logits / 5", 0, 0.6, 0.6),
    line("Dense", 1, 0.6, 0.5, nll=0.8),  # equal noisy accuracies: the likelihood decides
    line("Dense, logits / 5", 1, 0.6, 0.4, nll=0.9),
    line("Dense", 2, 0.6, 0.1),  # the other temperature is missing
]


@pytest.mark.parametrize("order", [1, -1])
def test_noisy_figures_choose_the_temperature_in_any_order_of_the_lines(order):
    chosen = {each["seed"]: each["epochs"][-1]["accuracy"] for each in networks.tuned(RECORDS[::order], networks.GROUP)}
    assert chosen == {0: 0.6, 1: 0.5}


def test_noisy_figures_choose_the_rate_of_each_seed():
    records = [*RECORDS[:4], line("Dense", 0, 0.7, 0.8, rate=0.2), line("Dense", 1, 0.5, 0.9, rate=0.2), *RECORDS[4:]]
    chosen = networks.tuned(records, {row: row for row in networks.ROWS})
    rates = {(each["row"], each["seed"]): each["rate"] for each in chosen}
    assert rates == {("Dense", 0): 0.2, ("Dense", 1): 0.1, ("Dense, logits / 5", 0): 0.1, ("Dense, logits / 5", 1): 0.1}
    assert ["a", "10", "Dense", "0.2", "0.600 +- 0.100", "0.850 +- 0.050", "2"] in networks.each_rate(records)


def test_the_table_by_epoch_has_the_means_of_the_seeds():
    more = line("Dense", 0, 0.5, 0.1) | {"size": 20}
    table = networks.by_epoch([RECORDS[0], RECORDS[2], more])
    assert table[0] == ["set", "labels", "head", "1", "2"]
    assert table[1:] == [["a", "10", "Dense", "0.900", "0.600"], ["a", "20", "Dense", "0.900", "0.100"]]


@pytest.mark.parametrize(("count", "expected"), [(450, [450]), (1100, [500, 500])])
def test_an_epoch_has_whole_batches_of_different_moved_images(count, expected):
    x = np.broadcast_to(np.uint8(1 + np.arange(count) % 250)[:, None, None, None], (count, 32, 32, 3))
    batches = networks.Moved(x, np.arange(count), 500, seed=0)
    first = [batches[index] for index in range(len(batches))]
    labels = np.concatenate([y for _, y in first])
    assert [len(y) for _, y in first] == expected
    assert len(set(labels)) == len(labels)
    for images, y in first:  # the centre of an image stays in it
        np.testing.assert_array_equal(images[:, 16, 16, 0], 1 + y % 250)
    batches.on_epoch_end()
    assert (batches[0][1] != first[0][1]).any()


def test_lines_of_another_number_of_epochs_are_refused(tmp_path, monkeypatch):
    (tmp_path / "real_scratch.jsonl").write_text(json.dumps(line("Dense", 0, 0.5, 0.7, epochs=30)))
    monkeypatch.setattr(sys, "argv", ["networks", "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match="trainings of 30 epochs"):
        networks.main()


@pytest.mark.parametrize("steps", [5, 100])
def test_the_rate_rises_for_a_tenth_of_the_steps_and_falls_to_zero(steps):
    rates = [float(finetune.falling(0.5, steps)(step)) for step in range(steps + 1)]
    assert max(rates) == rates[steps // 10] == 0.5
    np.testing.assert_allclose(rates[-1], 0.0, atol=1e-6)
    assert (np.diff(rates[: steps // 10]) > 0).all()
    assert (np.diff(rates[steps // 10 :]) < 0).all()
