"""Examples of the first pages run. `docs/tests` has the other pages."""

import pathlib
import re

import keras
import numpy as np
import pytest

import keras_het

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
PAGES = ("README.md", "docs/index.md", "docs/heads.md", "docs/pretrained.md")
EXAMPLES = [
    pytest.param(page, block.split("```")[0], id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate((ROOT / page).read_text().split("```python\n")[1:])
]


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_an_example_runs(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page, "exec"), {"__name__": "__main__"})


def test_the_head_of_the_readme_takes_the_place_of_a_dense_layer_and_of_nothing_else():
    """With the loss and the metric that the Dense layer had: log-probabilities would give an accuracy of zero."""
    lines = re.search(r"```diff\n- (.*)\n\+ (.*)\n```", (ROOT / "README.md").read_text()).groups()
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
