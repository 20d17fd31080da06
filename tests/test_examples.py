"""The example of README runs. `docs/tests` runs the examples of all pages."""

import pathlib
import re

import keras
import numpy as np
import pytest

import keras_het

pytestmark = pytest.mark.once

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs():
    exec(README.split("```python\n")[1].split("```")[0], {"__name__": "__main__"})


def test_the_head_of_the_readme_takes_the_place_of_a_dense_layer_and_of_nothing_else():
    """With the loss and the metric that the Dense layer had: log-probabilities would give an accuracy of zero."""
    lines = re.search(r"```diff\n- (.*)\n\+ (.*)\n```", README).groups()
    labels = np.arange(600) % 3
    x, accuracies = np.eye(3)[labels] + 0.3 * np.random.default_rng(0).normal(size=(600, 3)), []
    for line in lines:
        keras.utils.set_random_seed(0)
        scope = {"keras": keras, "keras_het": keras_het, "features": keras.Input((3,))}
        exec(line.replace("1000", "3"), scope)
        model = keras.Model(scope["features"], scope["p"])
        model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
        keras_het.check(model, x, labels)
        model.fit(x, labels, batch_size=50, epochs=5, verbose=0)
        accuracies.append(model.evaluate(x, labels, verbose=0)[1])
    assert min(accuracies) > 0.97
