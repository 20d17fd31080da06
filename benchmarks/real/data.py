"""Labels by people or rules, with the truth beside them: `read("CIFAR-10N worst", folder)`.

The files are arrays, `NAME.npz`, and images, `NAME_images.zip`, in the folder of `--data`. benchmarks/README.md says
where the originals are and what each file contains. `benchmarks.real.cifar` makes the files of CIFAR. Missing files,
missing rows, and labels that do not belong to their examples are refused by name. The repository contains none of the
data, and the result files contain only numbers.
"""

import io
import pathlib
import zipfile
from typing import NamedTuple

import numpy as np

FOLDER = pathlib.Path("../shared/data")
FROM = {  # where the originals are
    "cifar10n": "github.com/UCSC-REAL/cifar-10-100n and github.com/jcpeterson/cifar-10h",
    "cifar10_images": "www.cs.toronto.edu/~kriz/cifar.html",
    "cifar100n": "github.com/UCSC-REAL/cifar-10-100n",
    "cifar100_images": "www.cs.toronto.edu/~kriz/cifar.html",
    "fashion_mnist_h": "github.com/takashiishida/irreducible",
    "labelme": "github.com/seunghyukcho/PyLearningCrowds",
    "sentiment": "github.com/seunghyukcho/PyLearningCrowds",
    "trec": "github.com/JieyuZ2/wrench",
    "youtube": "github.com/JieyuZ2/wrench",
    "hausa": "github.com/uds-lsv/transfer-distant-transformer-african",
    "msrc": "palm.seu.edu.cn/zhangml (partial labels of MSRCv2)",
    "sms": "github.com/JieyuZ2/wrench",
    "fer": "github.com/microsoft/FERPlus",
    "verified": "github.com/cleanlab/label-errors",
    "movie_reviews": "github.com/fmpr/MA-sLDAr",
    "bu_bil_4": "www.cs.bu.edu/~betke/BiomedicalImageSegmentation (Gurari et al. 2015)",
}


class Set(NamedTuple):
    """Examples with labels by people or rules, and their true classes.

    x: training examples `(N, ...)`: features, pictures of bytes, or texts.
    labels: `(N,)`, one noisy label each: of a person, or the majority of the votes.
    truth: `(N,)`.
    x_test: test examples, without noisy labels.
    truth_test: `(L,)`.
    votes: `(N, M)` of annotators or rules, -1 where there is none; or None.
    test_votes: counts of people's votes for each class, `(L, K)`; or None.
    units: K.
    """

    x: np.ndarray
    labels: np.ndarray
    truth: np.ndarray
    x_test: np.ndarray
    truth_test: np.ndarray
    votes: np.ndarray | None
    test_votes: np.ndarray | None
    units: int


class Ratings(NamedTuple):
    """Counts of words, sparse `(N, V)`; `ratings` of people `(N, M)`, nan if missing; the truth `(N,)`."""

    x: object
    ratings: np.ndarray
    truth: np.ndarray
    x_test: object
    truth_test: np.ndarray


class Masks(NamedTuple):
    """Images of bytes `(N, H, W)`; `masks` of people `(N, M, H, W)`, 0 and 1; `truth` `(N, H, W)`."""

    images: np.ndarray
    masks: np.ndarray
    truth: np.ndarray


def read(name, folder=FOLDER, seed=0, pictures=True):
    """Returns a `Set` by its name, one of `SETS`.

    Args:
        name: key of `SETS`.
        folder: folder of the files.
        seed: integer for random draws: the votes of Fashion-MNIST-H, and ties of votes.
        pictures: boolean, whether to read the images of CIFAR. Otherwise their indices in the files stand for them.
    """
    if name not in SETS:
        raise ValueError(f"`name` must be one of {', '.join(SETS)}. Received: {name!r}")
    make, wrong = SETS[name]
    dataset = make(pathlib.Path(folder), np.random.default_rng([seed, 46]), pictures)
    rate = np.mean(dataset.labels != dataset.truth)
    if abs(rate - wrong) > 0.02:
        raise ValueError(
            f"The labels of {name} must be wrong for {wrong:.1%} of the examples. Received: {rate:.1%}, as if the rows "
            f"of labels and examples were in different orders"
        )
    return dataset


def arrays(stem, folder):
    """Returns the arrays of a file. If their names have the same end, they have equal lengths.

    Raises:
        FileNotFoundError: with the source of the original.
        ValueError: if the file is cut off.
    """
    path = pathlib.Path(folder) / f"{stem}.npz"
    check_there(path, stem)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise ValueError(f"{path.name} must be a whole file of arrays. Received: {error}") from error


def check_there(path, stem):
    """Raises FileNotFoundError, with the source of the original, if a file is missing."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path.name} is not in {path.parent}. It is made of {FROM[stem]}: see benchmarks/README.md, or name "
            f"another folder by --data"
        )


def same_length(file, **parts):
    """Raises ValueError if arrays of a file differ in their number of rows."""
    lengths = {name: len(part) for name, part in parts.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The arrays of {file} must have as many rows as each other. Received: {lengths}")


def pictures_of(stem, folder, expected, landmarks):
    """Returns images of bytes `(N, 32, 32, 3)` of a file in the order of their names, `train/` before `test/`.

    Args:
        stem: name of the file without its ending.
        folder: folder of the file.
        expected: numbers of images in `train/` and `test/`.
        landmarks: mean values of some images by row, which reveal a file in another order.
    """
    from PIL import Image

    path = pathlib.Path(folder) / f"{stem}.zip"
    check_there(path, stem)
    try:
        with zipfile.ZipFile(path) as file:
            names = sorted(name for name in file.namelist() if not name.endswith("/"))
            parts = [[name for name in names if name.startswith(part)] for part in ("train/", "test/")]
            counts = tuple(len(part) for part in parts)
            if counts != expected:
                raise ValueError(f"{path.name} must have {expected} pictures in train/, test/. Received: {counts}")
            files = (io.BytesIO(file.read(name)) for part in parts for name in part)
            images = np.stack([np.asarray(Image.open(each).convert("RGB")) for each in files])
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path.name} must be a whole file of pictures. Received: {error}") from error
    for row, mean in landmarks.items():
        if abs(images[row].mean() - mean) > 3.0:
            raise ValueError(
                f"{path.name} must have its pictures in the order of the labels. Received: a mean value of "
                f"{images[row].mean():.1f} for picture {row} instead of {mean}"
            )
    return images


def cifar10(folder, column, pictures):
    """Returns CIFAR-10N by one of its columns, and CIFAR-10H for testing."""
    table = arrays("cifar10n", folder)
    same_length("cifar10n.npz", clean=table["clean"], labels=table[column])
    same_length("cifar10n.npz", test_clean=table["test_clean"], test_votes=table["test_votes"])
    x, x_test = split_pictures("cifar10_images", folder, table, CIFAR10, pictures)
    return Set(x, table[column], table["clean"], x_test, table["test_clean"], None, table["test_votes"], 10)


def cifar100(folder, pictures):
    """Returns CIFAR-100N."""
    table = arrays("cifar100n", folder)
    same_length("cifar100n.npz", clean=table["clean"], noisy=table["noisy"])
    x, x_test = split_pictures("cifar100_images", folder, table, CIFAR100, pictures)
    return Set(x, table["noisy"], table["clean"], x_test, table["test_clean"], None, None, 100)


def split_pictures(stem, folder, table, landmarks, pictures):
    """Returns images of training and of the test, or their indices."""
    count, count_test = len(table["clean"]), len(table["test_clean"])
    rows = {int(np.flatnonzero(table["index"] == place)[0]): mean for place, mean in landmarks.items()}
    images = pictures_of(stem, folder, (count, count_test), rows) if pictures else np.arange(count + count_test)
    return images[:count], images[count:]


def fashion(folder, rng):
    """Returns Fashion-MNIST-H: one of about 67 votes for each of 8,000 images, and the other images as test."""
    table = arrays("fashion_mnist_h", folder)
    same_length("fashion_mnist_h.npz", **{name: table[name] for name in ("images", "clean", "votes")})
    p = table["votes"] / table["votes"].sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=9)
    order = np.random.default_rng(0).permutation(len(p))
    train, test = order[:8000], order[8000:]
    x, truth = table["images"], table["clean"]
    return Set(x[train], labels[train], truth[train], x[test], truth[test], None, table["votes"][test], 10)


def majority(votes, units, rng):
    """Returns the majority class, `(N, M)` to `(N,)`. Ties, and examples without votes, are drawn at random."""
    counts = (votes[:, :, None] == np.arange(units)).sum(axis=1)
    return (counts + 0.5 * rng.random(counts.shape)).argmax(axis=1)


def crowd(stem, folder, rng, votes="votes", kind="text"):
    """Returns the `Set` of a file with votes on texts or on features."""
    table, x, x_test = arrays(stem, folder), f"{kind}_train", f"{kind}_test"
    same_length(f"{stem}.npz", x=table[x], votes=table[votes], truth=table["y_train"])
    same_length(f"{stem}.npz", x_test=table[x_test], truth=table["y_test"])
    units = int(max(table["y_train"].max(), table[votes].max())) + 1
    labels = majority(table[votes], units, rng)
    return Set(table[x], labels, table["y_train"], table[x_test], table["y_test"], table[votes], None, units)


def hausa(folder):
    """Returns news titles, labelled by lists of words."""
    table = arrays("hausa", folder)
    same_length("hausa.npz", **{name: table[name] for name in ("text_train", "y_train", "noisy_train")})
    labels, truth = table["noisy_train"], table["y_train"]
    return Set(table["text_train"], labels, truth, table["text_test"], table["y_test"], None, None, 5)


def movie_reviews(folder=FOLDER):
    """Returns MovieReviews, a `Ratings`: ratings of films by readers of a review, and by its author."""
    from scipy.sparse import csr_array

    table = arrays("movie_reviews", folder)
    same_length("movie_reviews.npz", ratings=table["ratings"], y_train=table["y_train"])
    words = max(int(table[f"{part}_word"].max()) for part in ("train", "test")) + 1
    counts = []
    for part in ("train", "test"):
        rows, columns, values = (table[f"{part}_{kind}"] for kind in ("row", "word", "count"))
        same_length("movie_reviews.npz", row=rows, word=columns, count=values)
        same_length("movie_reviews.npz", reviews=range(rows.max() + 1), truth=table[f"y_{part}"])
        counts.append(csr_array((values.astype("float32"), (rows, columns)), (len(table[f"y_{part}"]), words)))
    ratings, truth = table["ratings"].astype("float64"), table["y_train"].astype("float64")
    near = np.corrcoef(np.nanmean(ratings, axis=1), truth)[0, 1]
    in_order("movie_reviews.npz", "means of the ratings", "a correlation with the true ones", near, 0.85)
    return Ratings(counts[0], ratings, truth, counts[1], table["y_test"].astype("float64"))


def cells(folder=FOLDER):
    """Returns BU-BIL 4, `Masks`: cells under a microscope, each drawn by seven people, and by experts."""
    table = arrays("bu_bil_4", folder)
    same_length("bu_bil_4.npz", **table)
    images, masks, truth = table["images"], table["masks"], table["gold"]
    voted = masks.mean(axis=1) > 0.5
    overlap = np.mean(np.sum(voted & (truth > 0), axis=(1, 2)) / np.sum(voted | (truth > 0), axis=(1, 2)))
    in_order("bu_bil_4.npz", "masks", "an overlap (IoU) with the true ones", overlap, 0.8)
    # A cell is far from the grey of its surroundings.
    far = np.abs(images - np.median(images.astype("float64"), axis=(1, 2), keepdims=True))
    near = np.mean([np.corrcoef(each.ravel(), mask.ravel())[0, 1] for each, mask in zip(far, truth, strict=True)])
    in_order("bu_bil_4.npz", "images", "a correlation with the masks", near, 0.55)
    return Masks(images, masks, truth)


def in_order(file, parts, what, value, least):
    """Raises ValueError if parts of a file agree less than in the original, as in another order of rows."""
    if not value >= least:
        raise ValueError(
            f"The {parts} of {file} must have {what} of at least {least}. Received: {value:.2f}, as if the rows were "
            f"in different orders"
        )


# Landmarks: mean values of some training pictures by their place in the original order.
CIFAR10 = {29: 148.6, 7842: 127.9, 34261: 109.6, 45597: 111.3, 6662: 115.3}
CIFAR100 = {0: 138.4, 779: 193.5, 12364: 96.5, 23503: 68.6, 34636: 147.0, 45768: 131.0}


# By name: a function of the folder, a generator and whether images are read; and the rate of label errors.
def regions(folder, rng):
    """Returns msrc: regions of images, each labelled by one of several possible classes, drawn at random."""
    table = arrays("msrc", folder)
    same_length("msrc.npz", x=table["x"], candidates=table["candidates"], truth=table["truth"])
    labels = (table["candidates"] * rng.random(table["candidates"].shape)).argmax(axis=1)
    return Set(table["x"], labels, table["truth"], table["x_test"], table["truth_test"], None, None, 23)


def messages(folder, rng):
    """Returns sms: messages with the majority of the rules that do not abstain."""
    table = arrays("sms", folder)
    same_length("sms.npz", x=table["x"], votes=table["votes"], truth=table["truth"])
    keep = (table["votes"] >= 0).any(axis=1)
    votes, truth = table["votes"][keep].astype(int), table["truth"][keep]
    labels = majority(votes, 2, rng)
    return Set(table["x"][keep], labels, truth, table["x_test"], table["truth_test"], votes, None, 2)


def faces(folder, rng):
    """Returns fer: faces with one of ten votes as label; the truth is the majority of the other votes, without ties."""
    table = arrays("fer", folder)
    same_length("fer.npz", x=table["x"], votes=table["votes"])
    counts, test = table["votes"].astype(int), table["votes_test"].astype(int)
    p = counts / counts.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=7)
    others = counts - np.eye(8, dtype=int)[labels]
    keep, keep_test = (np.diff(np.sort(part, axis=1)[:, -2:], axis=1)[:, 0] > 0 for part in (others, test))
    x, x_test = table["x"].astype("float32"), table["x_test"].astype("float32")[keep_test]
    truth, truth_test = others[keep].argmax(axis=1), test[keep_test].argmax(axis=1)
    return Set(x[keep], labels[keep], truth, x_test, truth_test, None, test[keep_test], 8)


SETS = {
    "CIFAR-10N aggregate": (lambda folder, rng, pictures: cifar10(folder, "aggregate", pictures), 0.090),
    "CIFAR-10N random1": (lambda folder, rng, pictures: cifar10(folder, "random1", pictures), 0.172),
    "CIFAR-10N worst": (lambda folder, rng, pictures: cifar10(folder, "worst", pictures), 0.402),
    "CIFAR-100N": (lambda folder, rng, pictures: cifar100(folder, pictures), 0.402),
    "Fashion-MNIST-H": (lambda folder, rng, pictures: fashion(folder, rng), 0.333),
    "LabelMe": (lambda folder, rng, pictures: crowd("labelme", folder, rng, kind="x"), 0.24),
    "Sentiment": (lambda folder, rng, pictures: crowd("sentiment", folder, rng), 0.115),
    "TREC": (lambda folder, rng, pictures: crowd("trec", folder, rng, "votes_train"), 0.485),
    "youtube": (lambda folder, rng, pictures: crowd("youtube", folder, rng, "votes_train"), 0.19),
    "Hausa": (lambda folder, rng, pictures: hausa(folder), 0.504),
    "msrc": (lambda folder, rng, pictures: regions(folder, rng), 0.61),
    "sms": (lambda folder, rng, pictures: messages(folder, rng), 0.03),
    "fer": (lambda folder, rng, pictures: faces(folder, rng), 0.25),
}
