"""The benchmark of transfer: its parts, the fresh layer, a run of two epochs, and its table by hand."""

import numpy as np
import pytest

from benchmarks.labels import transfer

pytestmark = pytest.mark.once


def small(seed):
    return transfer.digits(seed)._replace(epochs=2)


def test_upstream_labels_are_noisy_and_downstream_ones_clean_and_of_other_classes():
    data = transfer.digits(1)
    train, validation, other = transfer.parts(data, 1)
    known = {x.tobytes(): y for x, y in zip(*data.examples, strict=True)}
    true = np.array([sorted(data.upstream).index(known[x.tobytes()]) for x in train.x])
    wrong = np.mean(true != train.y)
    assert wrong == pytest.approx(transfer.RATE, abs=0.08)
    assert len(train.y) == pytest.approx(3 * len(validation.y), abs=3)
    assert [known[x.tobytes()] for x in other.x] == [(0, 2, 5, 6)[y] for y in other.y]
    few, rest = transfer.few_and_rest(other, 5, 1)
    assert np.bincount(few.y).tolist() == [5] * 4
    assert len(few.y) + len(rest.y) == len(other.y)


def test_the_fresh_layer_starts_equally_behind_every_pretraining_and_the_trunk_is_a_copy():
    data = small(0)
    train, _, other = transfer.parts(data, 0)
    starts = {}
    for method in transfer.PRETRAINED:
        model = transfer._upstream(data, train, method, 5.0, 0)
        before = [np.array(weight) for weight in model.layers[0].get_weights()]
        new = transfer.for_other_classes(model, 4, method, 0)
        np.testing.assert_array_equal(before[0], new.get_weights()[0])
        starts[method] = new.get_weights()[-2]
        transfer.downstream(new, "fine-tuned", *[transfer.few_and_rest(other, 5, 0)[0]] * 2, 0)
        assert not np.array_equal(before[0], new.get_weights()[0])
        np.testing.assert_array_equal(before[0], model.layers[0].get_weights()[0])
    assert all(np.array_equal(starts[transfer.DENSE], start) for start in starts.values())


def test_a_run_has_a_line_for_each_way_and_a_frozen_trunk_is_not_trained(monkeypatch):
    monkeypatch.setitem(transfer.DATA, "small", small)
    monkeypatch.setattr(transfer, "TEMPERATURES", (5.0,))
    monkeypatch.setattr(transfer, "SHOTS", (5,))
    monkeypatch.setattr(transfer, "DOWNSTREAM", {"frozen": (30, 1e-2), "fine-tuned": (5, 1e-3)})
    lines = list(transfer.rows("small", 0))
    assert [(line["pretraining"], line["way"]) for line in lines] == [
        (method, way) for method in (transfer.NONE, *transfer.PRETRAINED) for way in transfer.DOWNSTREAM
    ]
    assert all(line["accuracy"] > 0.4 for line in lines if line["way"] == "frozen")


def test_a_frozen_trunk_keeps_its_weights():
    data = small(0)
    train, _, other = transfer.parts(data, 0)
    new = transfer.for_other_classes(transfer._upstream(data, train, "full", 5.0, 0), 4, "full", 0)
    before = new.get_weights()
    transfer.downstream(new, "frozen", *transfer.few_and_rest(other, 5, 0), 0)
    assert [np.array_equal(a, b) for a, b in zip(before, new.get_weights(), strict=True)] == [True] * 4 + [False] * 2


def test_the_table_has_gains_over_dense_seed_by_seed():
    accuracy = {"Dense": (0.5, 0.7), "diagonal": (0.5, 0.6), "full": (0.6, 0.8), transfer.NONE: (0.2, 0.2)}
    lines = [
        {"data": "d", "seed": seed, "pretraining": method, "shots": shots, "way": way, "temperature": 5.0}
        | {"accuracy": values[seed]}
        for method, values in accuracy.items()
        for seed in (0, 1)
        for shots in transfer.SHOTS
        for way in transfer.DOWNSTREAM
    ]
    _, dense, diagonal, full, none = transfer.table(lines)
    assert dense == ["d", "Dense", *["0.600 +- 0.100"] * 4, "5, 5"]
    assert diagonal[2] == "-0.050 +- 0.050"
    assert full[:3] == ["", "full", "+0.100 +- 0.000"]
    assert none[-1] == ""
