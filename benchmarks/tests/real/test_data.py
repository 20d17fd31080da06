"""Reading of labels by people, on generated files of the same form."""

import numpy as np
import pytest

from benchmarks.real import cifar, data, plain

pytestmark = pytest.mark.once


def crowd_file(folder, rng, count=400, shuffled=False, rows=None):
    """Writes a file in the form of LabelMe with a quarter of the majorities wrong."""
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
    result = data.read("LabelMe", tmp_path)
    assert (result.units, result.x.shape) == (8, (400, 3))
    assert 0.7 < np.mean(result.labels == truth) < 0.8


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


def rating_file(folder, rng, rows=None, shuffled=False):
    """Writes eighty reviews of ten words, each rated by two of five people."""
    truth = rng.random(80).astype("float32")
    ratings = truth[:, None] + 0.05 * rng.normal(size=(80, 5)).astype("float32")
    ratings[rng.random((80, 5)).argsort(axis=1) >= 2] = np.nan
    arrays = {"ratings": rng.permutation(ratings) if shuffled else ratings, "y_train": truth, "y_test": truth[:20]}
    for part, count in (("train", 80), ("test", 20)):
        words = {"row": np.repeat(np.arange(count), 2), "word": np.tile([3, 9], count), "count": np.arange(2 * count)}
        arrays |= {f"{part}_{kind}": values for kind, values in words.items()}
    np.savez(folder / "movie_reviews.npz", **(arrays | {"y_train": truth[:rows]}))


def mask_file(folder, rng, rows=None, shuffled=""):
    """Writes bright discs on grey, drawn by seven people who err in a twentieth of the pixels."""
    places = np.arange(16)
    centers = rng.uniform(3, 13, size=(30, 2, 1))
    gold = (np.hypot(places[:, None] - centers[:, :1], places - centers[:, 1:]) < 4).astype("uint8")
    images = (100 + 80 * gold + rng.integers(20, size=gold.shape)).astype("uint8")
    masks = gold[:, None] ^ (rng.random((30, 7, 16, 16)) < 0.05)
    arrays = {"images": images, "masks": masks.astype("uint8"), "gold": gold[:rows]}
    order = np.roll(np.arange(30), 1)
    np.savez(
        folder / "bu_bil_4.npz", **{name: part[order] if name == shuffled else part for name, part in arrays.items()}
    )


def test_ratings_and_masks_are_read(tmp_path):
    rng = np.random.default_rng(0)
    rating_file(tmp_path, rng)
    result = data.movie_reviews(tmp_path)
    assert (result.x.shape, result.x_test.shape, result.ratings.shape) == ((80, 10), (20, 10), (80, 5))
    assert result.x[[4]].toarray().tolist() == [[0, 0, 0, 8, 0, 0, 0, 0, 0, 9]]
    mask_file(tmp_path, rng)
    assert [part.shape for part in data.cells(tmp_path)] == [(30, 16, 16), (30, 7, 16, 16), (30, 16, 16)]


@pytest.mark.planted
@pytest.mark.parametrize(
    ("reads", "writes", "file", "shuffled"),
    [
        (data.movie_reviews, rating_file, "movie_reviews", {True: "means of the ratings"}),
        (data.cells, mask_file, "bu_bil_4", {"masks": "masks", "images": "images"}),
    ],
    ids=["ratings", "masks"],
)
def test_ratings_and_masks_are_refused_by_name(reads, writes, file, shuffled, tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"{file}\.npz is not in .* It is made of "):
        reads(tmp_path)
    writes(tmp_path, np.random.default_rng(0), rows=29)
    with pytest.raises(ValueError, match=rf"arrays of {file}\.npz must have as many rows .*29"):
        reads(tmp_path)
    for part, name in shuffled.items():
        writes(tmp_path, np.random.default_rng(0), shuffled=part)
        with pytest.raises(ValueError, match=rf"The {name} of {file}\.npz must .* different orders"):
            reads(tmp_path)
    path = tmp_path / f"{file}.npz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=rf"{file}\.npz must be a whole file"):
        reads(tmp_path)


def picture_file(folder, order):
    """Writes six images of growing brightness under names in another order."""
    pictures = [np.full((32, 32, 3), 40 * place, "uint8") for place in order]
    names = [*(f"train/{row:05}.png" for row in range(4)), *(f"test/{row:05}.png" for row in range(2))]
    cifar.write_pictures(folder / "cifar100_images.zip", dict(zip(names, pictures, strict=True)))


@pytest.mark.planted
def test_pictures_come_in_the_order_of_the_labels_or_not_at_all(tmp_path):
    picture_file(tmp_path, range(6))
    result = data.pictures_of("cifar100_images", tmp_path, (4, 2), {0: 0.0, 3: 120.0})
    assert result[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 160, 200]
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
    result = plain.measures(logits, truth, votes)
    assert result["accuracy"] == np.mean([row.argmax() == label for row, label in zip(p, truth, strict=True)])
    np.testing.assert_allclose(result["nll"], np.mean([-np.log(p[i, truth[i]]) for i in range(50)]))
    q = votes / votes.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result["kl"], np.mean([sum(q[i] * np.log(q[i] / p[i])) for i in range(50)]))


def test_measures_refuse_nan():
    with pytest.raises(FloatingPointError, match="try a lower learning rate"):
        plain.measures(np.array([[0.0, 1.0], [np.nan, 0.0]]), np.array([0, 1]))
