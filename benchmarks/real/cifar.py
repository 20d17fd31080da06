"""Makes the files of CIFAR-10N and CIFAR-100N from `keras.datasets` and the authors' label files.

python -m benchmarks.real.cifar --labels CIFAR-10_human.pt --people cifar10h-counts.npy --data FOLDER
python -m benchmarks.real.cifar --labels CIFAR-100_human.pt --data FOLDER

The label files are at github.com/UCSC-REAL/cifar-10-100n, the counts of CIFAR-10H at github.com/jcpeterson/cifar-10h.
Images are ordered by class (CIFAR-10) or as in the original (CIFAR-100). `index` is the original index of each.
"""

import argparse
import io
import pathlib
import zipfile

import numpy as np

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def human_labels(path):
    """Returns the arrays of the authors' file."""
    import torch

    # The file is a pickle of a dict of arrays: nothing else in it is called. NumPy 2 moved the function.
    reconstruct = (np.ndarray.__reduce__(np.empty(0))[0], "numpy.core.multiarray._reconstruct")
    with torch.serialization.safe_globals([reconstruct, np.ndarray, np.dtype, np.dtypes.Int64DType]):
        return {name: np.asarray(value) for name, value in torch.load(path, weights_only=True).items()}


def write_pictures(path, pictures):
    """Writes a file of PNG images, `{name: (32, 32, 3)}`."""
    from PIL import Image

    with zipfile.ZipFile(path, "w") as file:
        for name, picture in pictures.items():
            stream = io.BytesIO()
            Image.fromarray(picture).save(stream, "png")
            file.writestr(name, stream.getvalue())


def ten(labels, people, folder):
    """Writes both files of CIFAR-10N, class by class."""
    import keras

    (x, y), (x_test, y_test) = keras.datasets.cifar10.load_data()
    orders = [np.argsort(part.ravel(), kind="stable") for part in (y, y_test)]
    arrays = human_labels(labels)
    if not np.array_equal(arrays["clean_label"], y.ravel()):
        raise ValueError(f"{labels} must have the labels of keras.datasets.cifar10 in the same order")
    columns = {"clean": "clean_label", "aggregate": "aggre_label", "random1": "random_label1", "worst": "worse_label"}
    table = {name: arrays[key][orders[0]].astype("int16") for name, key in columns.items()}
    tests = {"test_clean": y_test.ravel().astype("int16"), "test_votes": np.load(people).astype("int16")}
    table |= {name: value[orders[1]] for name, value in tests.items()}
    table |= {"index": orders[0].astype("int32"), "test_index": orders[1].astype("int32")}
    np.savez_compressed(folder / "cifar10n.npz", classes=np.array(CLASSES), **table)
    names = named("train", y.ravel()[orders[0]]) + named("test", y_test.ravel()[orders[1]])
    pictures = np.concatenate([x[orders[0]], x_test[orders[1]]])
    write_pictures(folder / "cifar10_images.zip", dict(zip(names, pictures, strict=True)))


def named(part, labels):
    """Returns names of images that sort like their labels."""
    numbers = np.arange(len(labels)) - np.searchsorted(labels, labels)
    return [f"{part}/{CLASSES[label]}/{number:04}.png" for label, number in zip(labels, numbers, strict=True)]


def hundred(labels, folder):
    """Writes both files of CIFAR-100N, in the original order."""
    import keras

    (x, y), (x_test, y_test) = keras.datasets.cifar100.load_data()
    human = human_labels(labels)
    table = {"clean": y.ravel(), "noisy": human["noisy_label"], "test_clean": y_test.ravel()}
    if not np.array_equal(human["clean_label"], y.ravel()):
        raise ValueError(f"{labels} must have the labels of keras.datasets.cifar100 in the same order")
    places = {"index": np.arange(len(y), dtype="int32"), "test_index": np.arange(len(y_test), dtype="int32")}
    arrays = {name: value.astype("int16") for name, value in table.items()} | places
    np.savez_compressed(folder / "cifar100n.npz", **arrays)
    parts = (("train", x), ("test", x_test))
    pictures = {f"{part}/{row:05}.png": picture for part, many in parts for row, picture in enumerate(many)}
    write_pictures(folder / "cifar100_images.zip", pictures)


def main():
    """Makes the files of the set that the label file belongs to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--labels", type=pathlib.Path, required=True, help="CIFAR-10_human.pt or CIFAR-100_human.pt")
    parser.add_argument("--people", type=pathlib.Path, help="cifar10h-counts.npy, with CIFAR-10_human.pt")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder to write to")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    if "100" in options.labels.name:
        hundred(options.labels, options.data)
    elif options.people is None:
        parser.error("--people must name cifar10h-counts.npy")
    else:
        ten(options.labels, options.people, options.data)


if __name__ == "__main__":
    main()
