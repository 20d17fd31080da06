"""The command parity: its answers and exit statuses. Its children run in this process, on one backend for all."""

import json
import os
import pathlib
import subprocess

import keras
import numpy as np
import pytest
import scipy.special
from keras import layers, ops

from keras_het import __main__, parity
from keras_het.base.internals import float64
from keras_het.losses import GeneralizedCrossentropy
from keras_het.parity import child, processes
from keras_het.parity.batch import make_batch, make_inputs, make_labels

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer"),  # of a model that was never trained
]


@keras.saving.register_keras_serializable("tests")
class ForgetsItsBias(layers.Dense):
    def save_own_variables(self, store):
        store["0"] = self.kernel

    def load_own_variables(self, store):
        self.kernel.assign(store["0"])


@keras.saving.register_keras_serializable("tests")
class SoftmaxInFloat32(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.inner = layers.Softmax(dtype="float32")

    def call(self, x):
        return ops.cast(self.inner(ops.cast(x, "float32")), self.compute_dtype)


@pytest.fixture
def in_this_process(monkeypatch):
    """Runs the children here, but for those in float64."""

    def run(command, **options):
        job = json.loads(pathlib.Path(command[-1]).read_text())
        if job.get("records") == "float64":
            pathlib.Path(job["folder"], "error.txt").write_text("NotImplementedError: no float64")
            return subprocess.CompletedProcess(command, 1, stderr="")
        return subprocess.CompletedProcess(command, child.main(command[-1]), stderr="")

    monkeypatch.setattr(processes.subprocess, "run", run)


def saved(model, folder):
    model.save(folder / "model.keras")
    return str(folder / "model.keras")


def small(kind=layers.Dense):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), kind(3, name="first"), layers.Dense(2, name="last")], name="model")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"])
    return model


def test_equal_backends(in_this_process, tmp_path, capsys):
    path, result = saved(small(), tmp_path), tmp_path / "result.json"
    assert __main__.main(["parity", path, "--backends", "jax", "torch", "--json", str(result)]) == 0
    printed = capsys.readouterr().out
    assert "the batch was made from the model's inputs: x (4, 4), y (4,); a second batch has zeros, ties" in printed
    assert "--data FILE gives your own" in printed
    assert "the file names an optimizer of torch alone. To train on another backend, compile the model again" in printed
    content = json.loads(result.read_text())
    assert content["status"] == 0
    twice = {"layers", "predictions", "loss", "metrics", "gradients"}
    once = {"weights", "training", "saved weights", "saved optimizer", "saved predictions"}
    assert {row["part"] for row in content["rows"]} == once | twice | {f"{part}, second batch" for part in twice}


@pytest.mark.thorough
def test_a_process_says_why_it_cannot_run(tmp_path, capsys):
    (tmp_path / "model.keras").write_bytes(b"no model")
    files = [str(tmp_path / "model.keras"), "--out", str(tmp_path / "out.npz")]
    assert __main__.main(["parity", "record", *files]) == 2
    assert capsys.readouterr().out == f"Could not run on {keras.config.backend()}: BadZipFile: File is not a zip file\n"


def test_what_cannot_run_is_said_for_each_backend(in_this_process, tmp_path, capsys):
    (tmp_path / "model.keras").write_bytes(b"no model")
    backend, answer = keras.config.backend(), tmp_path / "answer.json"
    more = ["--backends", backend, "jax" if backend == "torch" else "torch", "--json", str(answer)]
    assert __main__.main(["parity", str(tmp_path / "model.keras"), *more]) == 2
    assert (printed := capsys.readouterr().out).startswith(f"Could not run on {backend}: ")
    assert json.loads(answer.read_text()) == {"status": 2, "answer": printed.rstrip()}
    assert __main__.main(["parity", "missing.keras", "--json", "missing/answer.json"]) == 2
    assert capsys.readouterr().out == "Folder not found: missing\n"
    assert __main__.main(["parity", "missing.keras", *more[:3]]) == 2
    assert capsys.readouterr().out == "File not found: missing.keras\n"
    assert __main__.main(["parity", "missing.keras", "--backends", backend, backend]) == 2
    assert "needs two backends" in capsys.readouterr().out


def test_a_layer_of_your_own_needs_its_module(in_this_process, tmp_path):
    class Own(layers.Layer):
        def call(self, x):
            return x

    path = saved(keras.Sequential([keras.Input((4,)), Own()]), tmp_path)
    with pytest.raises(ValueError, match=r"Could not locate class 'Own'.* add --import MODULE with its module"):
        processes.compare_file(path, ["jax", "torch"])


@keras.saving.register_keras_serializable("tests")
class Breaks(layers.Layer):
    """Raises on the second of three backends."""

    def call(self, x):
        if os.environ.get("PARITY_TEST") == "tensorflow":
            raise NotImplementedError(f"{'a long text ' * 300}the reason")
        return x


def test_a_backend_that_fails_does_not_stop_the_others(monkeypatch, tmp_path):
    path = saved(keras.Sequential([keras.Input((4,)), Breaks(), layers.Dense(2)]), tmp_path)

    def run(folder, backend, job):
        monkeypatch.setenv("PARITY_TEST", backend)
        (folder / "job.json").write_text(json.dumps(job))
        return (folder / "error.txt").read_text() if child.main(folder / "job.json") else None

    monkeypatch.setattr(processes, "run_child", run)
    result = processes.compare_file(path, ["jax", "tensorflow", "torch"])
    assert result.status() == 2
    assert result.answer() == "jax and torch agree on all that they could compute, but 1 part failed."
    (failure,) = result.failures
    assert failure.startswith("tensorflow: ")
    assert "the reason" in failure


def test_recordings_in_files_are_compared(in_this_process, tmp_path, capsys):
    path, data = saved(small(), tmp_path), str(tmp_path / "batch.npz")
    np.savez(data, x=np.ones((5, 4), "float32"), y=np.arange(5) % 2)
    files = [str(tmp_path / f"{label}.npz") for label in ("before", "after")]
    for file, label in zip(files, ("before", "after"), strict=True):
        assert __main__.main(["parity", "record", path, "--out", file, "--label", label, "--data", data]) == 0
        assert f"Recorded in {file}" in capsys.readouterr().out
    assert __main__.main(["parity", "compare", *files]) == 0
    assert "before and after agree" in capsys.readouterr().out
    assert __main__.main(["parity", "record", path]) == 2
    assert "Recording needs one model and the file to write" in capsys.readouterr().out


@keras.saving.register_keras_serializable("tests")
class FailsInTraining(layers.Layer):
    def call(self, x, training=False):
        if training:
            raise NotImplementedError("no such operation")
        return x


def test_a_recording_with_a_part_that_failed_has_another_status(in_this_process, tmp_path, capsys):
    path = saved(keras.Sequential([keras.Input((4,)), FailsInTraining(), layers.Dense(2)]), tmp_path)
    assert __main__.main(["parity", "record", path, "--out", str(tmp_path / "out.npz")]) == 2
    assert "Failed: gradients: NotImplementedError" in capsys.readouterr().out


def test_a_test_can_assert_parity_and_a_weight_that_is_not_saved_is_named(in_this_process):
    """The children do not run in float64 here."""
    x, y = np.random.default_rng(0).standard_normal((5, 4)).astype("float32"), np.arange(5) % 2
    with pytest.raises(AssertionError, match="a model that jax saves and torch loads is not the same") as error:
        parity.assert_parity(small(ForgetsItsBias), x, y, backends=["jax", "torch"])
    assert "first/bias" in str(error.value).partition("weights that change when the model is saved and loaded: ")[2]
    assert "the batch was made" not in str(error.value)


def test_a_model_in_float64_computes_nothing_in_float32(tmp_path):
    """As attention and normalization of KerasHub do."""
    model = keras.Sequential([keras.Input((3,)), SoftmaxInFloat32()])
    x = np.random.default_rng(0).standard_normal((5, 3))
    with float64():
        outputs = child._load(saved(model, tmp_path), True)[0](x)
    np.testing.assert_allclose(outputs, scipy.special.softmax(x, axis=-1), rtol=1e-14)


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize` method")
def test_a_model_in_int8_has_a_judge(tmp_path):
    model = small()
    model.quantize("int8")
    x = np.random.default_rng(0).standard_normal((5, 4)).astype("float32")
    with float64():
        outputs = child._load(saved(model, tmp_path), True)[0](x)
    np.testing.assert_allclose(*map(ops.convert_to_numpy, (outputs, model(x))), rtol=1e-2, atol=1e-2)
    assert list(parity.record(model, x).arrays["layers"]) == ["first (Dense)", "last (Dense)"]


@keras.saving.register_keras_serializable("tests")
class OwnCompile(keras.Sequential):
    def compile(self, *arguments, **options):
        super().compile(*arguments, **options)


@keras.saving.register_keras_serializable("tests")
class OwnCompileConfig(OwnCompile):
    def compile_from_config(self, config):
        self.compile("adam", "mse")  # Keras does not build this optimizer when it loads the model


def test_the_state_of_an_optimizer_that_keras_does_not_build_is_not_compared(in_this_process, tmp_path):
    model = OwnCompileConfig([keras.Input((4,)), layers.Dense(2)])
    model.compile("adam", "mse")
    assert processes.compare_file(saved(model, tmp_path), ["jax", "torch"]).is_equal


@pytest.mark.filterwarnings("ignore:`compile")
def test_a_model_whose_own_compile_is_not_called_is_compared_without_its_loss(in_this_process, tmp_path):
    model = OwnCompile([keras.Input((4,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    result = processes.compare_file(saved(model, tmp_path), ["jax", "torch"])
    assert "the model is not compiled when it is loaded" in result.notes[1]


# Batches.


def test_integers_are_in_the_range_of_the_embedding_that_they_reach():
    inputs = [keras.Input((6,), dtype="int32", name=name) for name in ("tokens", "segments", "padding_mask")]
    inputs.append(keras.Input((None, 3), name="series"))
    tokens, segments = (layers.Embedding(size, 4)(x) for size, x in zip((50, 3), inputs, strict=False))
    x = layers.Concatenate()([layers.Flatten()(x) for x in (tokens, segments)])
    means = layers.GlobalAveragePooling1D()(inputs[3])
    binned = layers.CategoryEncoding(3)(layers.Discretization([-0.1, 0.1])(means))  # floats stay floats
    outputs = layers.Dense(2)(layers.Concatenate()([x, means, binned]))
    model = keras.Model({x.name: x for x in inputs}, outputs)
    made = make_inputs(model)
    assert {name: x.shape for name, x in made.items()} == {
        "tokens": (4, 6), "segments": (4, 6), "padding_mask": (4, 6), "series": (4, 32, 3),
    }  # fmt: skip
    assert 10 < made["tokens"].max() < 50
    assert made["series"].min() < 0
    assert set(made["segments"].ravel()) == {0, 1, 2}
    assert made["padding_mask"].sum(1).tolist() == [6, 5, 4, 6]
    assert model(made).shape == (4, 2)


@pytest.mark.filterwarnings("ignore:.*does not support masking")  # of Keras 3.16
def test_a_row_of_padding_alone_is_left_out_only_if_it_gives_nan():
    for last, has_row in ((layers.GlobalAveragePooling1D(), False), (layers.SimpleRNN(2), True)):
        arrays, notes = make_batch(keras.Sequential([keras.Input((6,)), layers.Embedding(9, 4, mask_zero=True), last]))
        assert (~arrays["second x"].any(1)).tolist() == [False, has_row, False, False]
        assert len(notes) == (not has_row)


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
