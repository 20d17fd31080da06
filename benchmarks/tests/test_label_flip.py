"""The benchmark of label flips: its data, its claims in one small run, and its report."""

import numpy as np
import pytest

from benchmarks.labels import label_flip, label_flip_report
from keras_het.ops.transition import total_variation

pytestmark = pytest.mark.once


def test_labels_are_noisy_but_for_the_test_and_small_sets_are_parts_of_large_ones():
    small, large = (label_flip.flipped_digits("pair", 0.45, size, 0) for size in (128, 1024))
    np.testing.assert_array_equal(small.train[1], large.train[1][:128])
    clean = label_flip.shuffled_digits(0)[1]
    rates = [
        np.mean(part[1] != clean[part_of])
        for part, part_of in ((large.train, slice(1024)), (large.validation, slice(1024, 1280)))
    ]
    assert 0.35 < min(rates) < max(rates) < 0.55
    np.testing.assert_array_equal(large.test[1], clean[1280:])
    np.testing.assert_array_equal((large.train[1] - clean[:1024]) % 10 <= 1, True)


def test_outliers_have_their_share_and_no_class():
    data = label_flip.outlier_digits(0.5, 0)
    assert len(data.train[1]) == 2 * label_flip.NUM_INLIERS
    labelled = np.mean(data.train[1] == label_flip.INLIERS)
    assert 0.05 < labelled < 0.15  # a fifth of one half
    assert data.test[1].max() == 9


def test_a_learned_t_finds_pair_flips_and_none_does_not(monkeypatch):
    task = label_flip.Task("noise", "pair", 0.45, label_flip.TRAIN, 0)
    data = label_flip.flipped_digits("pair", 0.45, task.size, task.seed)
    monkeypatch.setattr(label_flip, "STRENGTHS", (0.07,))
    found = label_flip.learned(task, data)
    plain = label_flip.plain(task, data)
    assert label_flip.error(found.model, data.test) < label_flip.error(plain, data.test) - 0.2
    assert label_flip.of_transition(found, data)["distance"] < 0.1
    assert total_variation(np.eye(10), data.transition) == pytest.approx(0.45)
    without = label_flip.learned(task, data, "none")  # T stays at the identity
    assert label_flip.of_transition(without, data)["distance"] > 0.4


def rows():
    """Two seeds of two methods at two levels, with figures that are easy to average."""
    made = []
    for level, seed in ((0.5, 0), (0.5, 1), (0.65, 0), (0.65, 1)):
        base = {"part": "noise", "noise": "random", "level": level, "size": 8, "seed": seed}
        made.append({**base, "method": "none", "error": 0.3 + 0.02 * seed})
        made.append({**base, "method": "true T", "error": 0.1, "transition": np.eye(3).tolist()})
        learned = {"error": 0.12, "distance": 0.1 + 0.1 * seed, "strength": 0.1, "transition": np.eye(3).tolist()}
        made.append({**base, "method": "learned T", **learned})
    return made


def test_the_tables_average_over_seeds():
    tables = label_flip_report.describe(rows())
    errors = tables["error on clean test data, random flips, by their share"]
    assert ["none", "0.310 +- 0.010", "0.310 +- 0.010"] in errors
    expected = "random 50%: learned 0.120, true 0.100, none 0.310: +2.0 points over the true T, 19.0 under none; "
    assert f"{expected}total variation 0.150" in tables["what a learned T has to show"]


def test_all_plots_are_drawn(tmp_path):
    sizes = [{**row, "part": "sizes", "size": size} for size in (8, 16) for row in rows()]
    outliers = [{**row, "part": "outliers"} for row in rows() if row["method"] != "learned T"]
    label_flip_report.save(rows() + sizes + outliers, tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.png") if path.read_bytes().startswith(b"\x89PNG")}
    assert drawn == {"error_by_noise.png", "error_by_size.png", "error_by_outliers.png", "transitions.png"}
    assert (tmp_path / "label_flip.jsonl").exists()
