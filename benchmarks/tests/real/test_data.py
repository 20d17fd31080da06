"""The reading of labels that people gave, on generated files of the same form."""

import numpy as np
import pytest

from benchmarks.real import cifar, data, plain

pytestmark = pytest.mark.once


def crowd_file(folder, rng, count=400, shuffled=False, rows=None):
    """A file in the form of LabelMe: a quarter of the majorities is wrong."""
    truth = rng.integers(8, size=count)
    wrong = rng.random(count) < 0.24
    votes = np.full((count, 5), -1)
    votes[:, 1] = np.where(wrong, (truth + 1) % 8, truth)
    if shuffled:
        votes = rng.permutation(votes)
    x = rng.normal(size=(count, 3)).astype("float32")
    arrays = {"x_train": x[:rows], "votes": votes, "y_train": truth, "x_test": x, "y_test": truth}
    np.savez(folder / "labelme.npz", **arrays)
    return truth


def test_votes_become_labels(tmp_path):
    truth = crowd_file(tmp_path, np.random.default_rng(0))
    found = data.read("LabelMe", tmp_path)
    assert (found.units, found.x.shape) == (8, (400, 3))
    assert 0.7 < np.mean(found.labels == truth) < 0.8


@pytest.mark.planted
def test_a_missing_a_truncated_and_a_shuffled_file_are_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"labelme\.npz is not in .* It is made of github\.com/"):
        data.read("LabelMe", tmp_path)
    crowd_file(tmp_path, np.random.default_rng(0), shuffled=True)
    with pytest.raises(ValueError, match=r"labels of LabelMe must be wrong for 24\.0% .* different orders"):
        data.read("LabelMe", tmp_path)
    crowd_file(tmp_path, np.random.default_rng(0), rows=399)
    with pytest.raises(ValueError, match=r"arrays of labelme\.npz must have as many rows .*399"):
        data.read("LabelMe", tmp_path)
    path = tmp_path / "labelme.npz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"labelme\.npz must be a whole file"):
        data.read("LabelMe", tmp_path)


def picture_file(folder, order):
    """Six pictures, of growing brightness, under names in another order."""
    pictures = [np.full((32, 32, 3), 40 * place, "uint8") for place in order]
    names = [*(f"train/{row:05}.png" for row in range(4)), *(f"test/{row:05}.png" for row in range(2))]
    cifar.write_pictures(folder / "cifar100_images.zip", dict(zip(names, pictures, strict=True)))


@pytest.mark.planted
def test_pictures_come_in_the_order_of_the_labels_or_not_at_all(tmp_path):
    picture_file(tmp_path, range(6))
    found = data.pictures_of("cifar100_images", tmp_path, (4, 2), {0: 0.0, 3: 120.0})
    assert found[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 160, 200]
    picture_file(tmp_path, [3, 1, 2, 0, 4, 5])
    with pytest.raises(ValueError, match="pictures in the order of the labels"):
        data.pictures_of("cifar100_images", tmp_path, (4, 2), {0: 0.0, 3: 120.0})
    with pytest.raises(ValueError, match=r"must have \(4, 3\) pictures"):
        data.pictures_of("cifar100_images", tmp_path, (4, 3), {})
    path = tmp_path / "cifar100_images.zip"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="whole file of pictures"):
        data.pictures_of("cifar100_images", tmp_path, (4, 2), {})


def test_names_of_pictures_sort_as_their_classes():
    names = cifar.named("train", np.array([0, 0, 0, 1, 1, 9]))
    assert (names, len(set(names)), names[-1]) == (sorted(names), 6, "train/truck/0000.png")


def test_measures_against_brute_force():
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(50, 4)), rng.integers(4, size=50)
    votes = rng.integers(1, 9, size=(50, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = plain.measures(logits, truth, votes)
    assert found["accuracy"] == np.mean([row.argmax() == label for row, label in zip(p, truth, strict=True)])
    np.testing.assert_allclose(found["nll"], np.mean([-np.log(p[i, truth[i]]) for i in range(50)]))
    q = votes / votes.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["kl"], np.mean([sum(q[i] * np.log(q[i] / p[i])) for i in range(50)]))


def test_votes_of_neighbours_leave_the_example_out():
    x = np.repeat(np.eye(3), 15, axis=0) + 0.01 * np.random.default_rng(0).normal(size=(45, 3))
    y = np.repeat(np.arange(3), 15)
    y[7] = 2
    shares = plain.neighbour_votes(x, y, 3, x, leave_out=True)
    assert shares.argmax(axis=1).tolist() == np.repeat(np.arange(3), 15).tolist()
    assert shares[7, 2] == 0  # its own label
