"""Networks on an accelerator: the choice of temperature and rate, the batches, and the refusal of other trainings."""

import itertools
import json
import sys
import types

import numpy as np
import pytest

from benchmarks.lib import results
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
    chosen = {
        each["seed"]: each["epochs"][-1]["accuracy"] for each in networks.tuned(RECORDS[::order], networks.LAYERS)
    }
    assert chosen == {0: 0.6, 1: 0.5}


def test_noisy_figures_choose_the_rate_of_each_seed():
    records = [*RECORDS[:4], line("Dense", 0, 0.7, 0.8, rate=0.2), line("Dense", 1, 0.5, 0.9, rate=0.2), *RECORDS[4:]]
    chosen = networks.tuned(records, {row: row for row in networks.ROWS})
    rates = {(each["row"], each["seed"]): each["rate"] for each in chosen}
    assert rates == {("Dense", 0): 0.2, ("Dense", 1): 0.1}  # the other row lacks a rate
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


def run(folder, name, records, *options, monkeypatch):
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    monkeypatch.setattr(sys, "argv", ["networks", "--output", str(folder), *options])
    networks.main()
    return results.read(folder / f"{name}.json").tables


@pytest.mark.parametrize(
    ("name", "options", "epochs"), [("real_scratch", (), 20), ("real_pretrained", ("--pretrained",), 3)]
)
def test_the_tables_of_existing_lines(name, options, epochs, tmp_path, monkeypatch):
    pairs = itertools.product(networks.ROWS, (0.1, 0.2))
    records = [
        line(row, 0, rate + place / 100, place / 10, 1.0, epochs, rate) for place, (row, rate) in enumerate(pairs)
    ]
    del records[4]  # one rate of the full head
    tables = run(tmp_path, name, records, "--render", *options, monkeypatch=monkeypatch)
    chosen = {title: [row[2:4] for row in table[1:]] for title, table in tables.items()}
    rows = [["Dense", "0.100"], ["Dense, logits / 5", "0.300"]]
    assert chosen["each temperature"] == rows
    assert chosen["temperature by noisy accuracy"] == [["Dense", "0.300"]]
    assert len(chosen["each rate"]) == 5
    by_epoch = tables["clean accuracy by epoch"]
    assert by_epoch[0][-1] == str(epochs)
    assert [row[-1] for row in by_epoch[1:]] == [accuracy for _, accuracy in rows]


@pytest.mark.parametrize(
    ("options", "epochs", "match"),
    [
        ((), 30, "of 30 epochs"),
        ((), 3, "of 3 epochs"),
        (("--pretrained",), 20, "of 20 epochs"),
        ((), 20, "without rate"),
    ],
)
def test_lines_of_another_training_are_refused(options, epochs, match, tmp_path, monkeypatch):
    record = line("Dense", 0, 0.5, 0.7, epochs=epochs)
    if match == "without rate":
        del record["rate"]
    name = "real_pretrained" if options else "real_scratch"
    with pytest.raises(SystemExit, match=match):
        run(tmp_path, name, [record], "--render", *options, monkeypatch=monkeypatch)


def test_a_diverged_training_is_named_and_the_others_count(tmp_path, monkeypatch):
    def train(name, dataset, row, rate, seed, options):
        if row == "Dense":
            raise FloatingPointError("the model predicts NaN")
        return {
            key: value for key, value in line(row, seed, 0.5, 0.7, epochs=20).items() if key in ("epochs", "elapsed")
        }

    monkeypatch.setattr(networks, "train", train)
    monkeypatch.setattr(finetune.data, "read", lambda *_: types.SimpleNamespace(labels=range(10)))
    with pytest.raises(SystemExit, match=r"CIFAR-100N, Dense, 0\.002, seed 0: the model predicts NaN"):
        run(tmp_path, "real_scratch", [], "--sets", "CIFAR-100N", "--seeds", "1", monkeypatch=monkeypatch)
    table = results.read(tmp_path / "real_scratch.json").tables["each rate"]
    assert [row[2] for row in table[1:]] == list(networks.ROWS[1:])


@pytest.mark.parametrize("steps", [5, 100])
def test_the_rate_rises_for_a_tenth_of_the_steps_and_falls_to_zero(steps):
    rates = [float(finetune.falling(0.5, steps)(step)) for step in range(steps + 1)]
    assert max(rates) == rates[steps // 10] == 0.5
    np.testing.assert_allclose(rates[-1], 0.0, atol=1e-6)
    assert (np.diff(rates[: steps // 10]) > 0).all()
    assert (np.diff(rates[steps // 10 :]) < 0).all()
