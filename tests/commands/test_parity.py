"""The command parity: its answers and exit statuses. Its children run in this process, on one backend for all."""

import json
import pathlib
import subprocess

import keras
import numpy as np
import pytest
from keras import layers

from keras_het import __main__
from keras_het.commands import parity
from keras_het.losses import GeneralizedCrossentropy
from keras_het.parity import child
from keras_het.parity.batch import make_inputs, make_labels

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer"),  # of a model that was never trained
]


@keras.saving.register_keras_serializable("tests")
class ForgetsItsBias(layers.Dense):
    """Does not save its bias."""

    def save_own_variables(self, store):
        store["0"] = self.kernel

    def load_own_variables(self, store):
        self.kernel.assign(store["0"])


@pytest.fixture
def in_this_process(monkeypatch):
    """Runs the children here, but for those in float64."""

    def run(command, **options):
        job = json.loads(pathlib.Path(command[-1]).read_text())
        if job.get("float64"):
            return subprocess.CompletedProcess(command, 1, stderr="NotImplementedError: no float64")
        child.main(command[-1])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(parity.subprocess, "run", run)


def saved(model, folder):
    model.save(folder / "model.keras")
    return str(folder / "model.keras")


def small(kind=layers.Dense):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), kind(3, name="first"), layers.Dense(2, name="last")], name="model")
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_equal_backends(in_this_process, tmp_path, capsys):
    path, result = saved(small(), tmp_path), tmp_path / "result.json"
    assert __main__.main(["parity", path, "--backends", "jax", "torch", "--json", str(result)]) == 0
    printed = capsys.readouterr().out
    assert "agree" in printed
    assert "the batch was made from the model's inputs: x (4, 4), y (4,); --data FILE gives your own" in printed
    assert "the model does not run in float64 on jax" in printed
    assert "the file names an optimizer of torch alone. To train on another backend, compile the model again" in printed
    content = json.loads(result.read_text())
    assert content["status"] == 0
    assert {row["part"] for row in content["rows"]} == {
        "weights", "layers", "predictions", "loss", "gradients", "training", "saved weights", "saved predictions",
    }  # fmt: skip


@pytest.mark.planted
def test_a_weight_that_is_not_saved_is_named(in_this_process, tmp_path, capsys):
    data = tmp_path / "batch.npz"
    np.savez(data, x=np.ones((5, 4), "float32"), y=np.arange(5) % 2)
    path = saved(small(ForgetsItsBias), tmp_path)
    assert __main__.main(["parity", path, "--backends", "jax", "torch", "--data", str(data)]) == 1
    printed = capsys.readouterr().out
    assert "weights that change when the model is saved and loaded: first/bias" in printed
    assert "the batch was made" not in printed


def test_what_cannot_run_is_said_for_each_backend(tmp_path, capsys):
    (tmp_path / "model.keras").write_bytes(b"no model")
    backend, answer = keras.config.backend(), tmp_path / "answer.json"
    more = ["--backends", backend, "jax" if backend == "torch" else "torch", "--json", str(answer)]
    assert __main__.main(["parity", str(tmp_path / "model.keras"), *more]) == 2
    assert (printed := capsys.readouterr().out).startswith(f"Could not run on {backend}: ")
    assert json.loads(answer.read_text()) == {"status": 2, "answer": printed.rstrip()}
    assert __main__.main(["parity", "missing.keras", "--json", "missing/answer.json"]) == 2
    assert capsys.readouterr().out == "Folder not found: missing\n"
    assert __main__.main(["parity", "missing.keras"]) == 2
    assert capsys.readouterr().out == "File not found: missing.keras\n"
    assert __main__.main(["parity", "missing.keras", "--backends", backend, backend]) == 2
    assert "needs two backends" in capsys.readouterr().out


def test_a_layer_of_your_own_needs_its_module(monkeypatch, tmp_path):
    error = "TypeError: Could not locate class 'Own'. Make sure custom classes are decorated"
    done = subprocess.CompletedProcess([], 1, stderr=f"Traceback\n{error}\n")
    monkeypatch.setattr(parity.subprocess, "run", lambda command, **options: done)
    assert parity._run_child(tmp_path, "jax", []).endswith("add --import MODULE with its module")


def test_a_file_is_read_in_float64(tmp_path):
    model = keras.saving.load_model(child.rewrite(saved(small(), tmp_path), child.use_float64))
    assert {layer.compute_dtype for layer in model.layers} == {"float64"}


# Batches.


def test_integers_are_in_the_range_of_the_embedding_that_they_reach():
    inputs = [keras.Input((6,), dtype="int32", name=name) for name in ("tokens", "segments", "padding_mask")]
    inputs.append(keras.Input((None, 3), name="series"))
    tokens, segments = (layers.Embedding(size, 4)(x) for size, x in zip((50, 3), inputs, strict=False))
    x = layers.Concatenate()([layers.Flatten()(x) for x in (tokens, segments)])
    outputs = layers.Dense(2)(layers.Concatenate()([x, layers.GlobalAveragePooling1D()(inputs[3])]))
    model = keras.Model({x.name: x for x in inputs}, outputs)
    made = make_inputs(model)
    assert {name: x.shape for name, x in made.items()} == {
        "tokens": (4, 6), "segments": (4, 6), "padding_mask": (4, 6), "series": (4, 32, 3),
    }  # fmt: skip
    assert 10 < made["tokens"].max() < 50
    assert set(made["segments"].ravel()) == {0, 1, 2}
    assert made["padding_mask"].sum(1).tolist() == [6, 5, 4, 6]
    assert model(made).shape == (4, 2)


def test_an_embedding_that_the_model_does_not_call_is_no_range():
    class Spare(keras.Model):
        def __init__(self):
            super().__init__()
            self.spare, self.inner = layers.Embedding(3, 2), layers.Embedding(50, 2)
            self.spare.build(None)

        def call(self, x):
            return self.inner(x)

    model = Spare()
    model(np.zeros((4, 6)))
    assert 10 < make_inputs(model).max() < 50


def test_a_model_of_unknown_shapes_needs_data():
    class Own(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(ValueError, match=r"The model must know the shapes of its inputs .* \(--data\). Received: a"):
        make_inputs(Own())


@pytest.mark.parametrize(("loss", "shape"), [
    ("sparse_categorical_crossentropy", (4,)), ("categorical_crossentropy", (4, 3)),
    (keras.losses.BinaryCrossentropy(), (4, 3)), (keras.losses.MeanSquaredError(), (4, 3)), ("kl_divergence", (4, 3)),
    (["mse"], (4, 3)), ("crossentropy", (4,)), ({"last": keras.losses.sparse_categorical_crossentropy}, (4,)),
    (GeneralizedCrossentropy(), (4,)),
])  # fmt: skip
def test_labels_fit_the_loss(loss, shape):
    inputs = keras.Input((2,))
    model = keras.Model(inputs, layers.Dense(3, "softmax", name="last")(inputs))
    model.compile("sgd", loss)
    labels = make_labels(model, make_inputs(model))
    assert labels.shape == shape
    assert np.isfinite(model.train_on_batch(make_inputs(model), labels))
    is_classes, is_numbers = labels.dtype == "int32", loss == ["mse"] or isinstance(loss, keras.losses.MeanSquaredError)
    assert is_classes == (len(shape) == 1)
    assert is_numbers == bool((labels < 0).any())


def test_labels_of_an_own_loss_are_asked_for():
    """Its name tells no form: of integers read from normal numbers, backends compute different losses."""
    model = keras.Sequential([keras.Input((2,)), layers.Dense(3)])
    model.compile("sgd", lambda y, p: keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True))
    with pytest.raises(ValueError, match=r"^The loss must be a Keras loss of classes or numbers, .* pass data: --data"):
        make_labels(model, make_inputs(model))
