"""Real KerasHub classes: presets in a local folder, preprocessing, conversion, fitting, files, LoRA, int8."""

import importlib.util
import re

import keras
import numpy as np
import pytest
from keras_hub import models
from numpy.testing import assert_allclose

import keras_het
from keras_het import heteroscedastic, homoscedastic
from keras_het.labels.data import read
from keras_het.labels.methods import EarlyLearning
from keras_het.labels.training.networks import trained_features
from keras_het.labels.training.trainer import Trainer
from keras_het.models.raw_inputs import preprocessing_model
from tests.common import assert_same_arrays, compiled, python, refuses, reloaded, to_numpy
from tests.integrations.hub.tasks import LABELS, TASKS, bert
from tests.models.checks import UNITS, check_conversion, check_fit, sharpen

BACKENDS = ["jax", "tensorflow", "torch"]
OTHERS = [name for name in BACKENDS if name != keras.config.backend() and importlib.util.find_spec(name)]
ANY_TASK = dict.fromkeys(["ResNet", "ViT"], models.ImageClassifier) | {"BERT": models.TextClassifier}
# KerasHub's `fit` does not shuffle, and says so. Some tasks are compiled for logits although they have a softmax.
pytestmark = pytest.mark.filterwarnings("ignore:.shuffle=True. was passed", "ignore:The new model keeps the loss of")
PREDICT = """
import sys
import numpy as np
import keras
import keras_het
assert "keras_hub" not in sys.modules
model = keras.models.load_model(sys.argv[1])
keras_het.check(model)
np.save(sys.argv[3], model.predict(np.load(sys.argv[2]), verbose=0))
"""
PREDICT_PRESET = """
import sys
import numpy as np
import keras_het
assert "keras_hub" not in sys.modules
import keras_hub
preset, x, outputs, *kinds = sys.argv[1:]
models = [getattr(keras_hub.models, kind).from_preset(preset) for kind in kinds]
np.save(outputs, [model.predict(np.load(x), verbose=0) for model in models])
"""


def from_preset(name, folder, **arguments):
    make, _ = TASKS[name]
    sharpen(make(activation="softmax")).save_to_preset(str(folder / "preset"))
    return ANY_TASK[name].from_preset(str(folder / "preset"), **arguments)


def converted_preset(name, folder):
    task = from_preset(name, folder)
    task.compile()  # KerasHub compiles before it knows the activation, with a loss of logits
    return task, TASKS[name][1](), heteroscedastic(task, 2, seed=0)


@pytest.mark.parametrize("activation", [None, "softmax"])
@pytest.mark.parametrize("name", TASKS)
def test_conversion(name, activation, tmp_path):
    make, raw = TASKS[name]
    task = sharpen(make(activation=activation))
    x = task.preprocessor(raw())
    bare = keras.Model(task.input, task.output)  # so that the checks give both models what the preprocessor makes
    assert check_conversion(bare, x, LABELS, tmp_path).layers[-1].name in ("predictions", "logits")


@pytest.mark.filterwarnings("ignore:__array__")  # `pytest.warns` records Keras' warning and raises it as an error
@pytest.mark.parametrize("name", ANY_TASK)
def test_a_task_predicts_as_before_comes_compiled_and_trains_evaluates_and_reloads_with_raw_inputs(name, tmp_path):
    task, raw, model = converted_preset(name, tmp_path)
    p = model.predict(raw, verbose=0)
    assert_allclose(p, task.predict(raw, verbose=0), atol=0.02)
    assert_allclose(to_numpy(model(task.preprocessor(raw))), p, rtol=1e-5, atol=1e-5)
    keras_het.check(model)
    assert model.preprocessor is task.preprocessor
    assert model.backbone is task.backbone
    assert model.loss.get_config()["from_logits"] is False
    history = model.fit(raw, LABELS, batch_size=8, validation_split=0.25, verbose=0).history
    assert sorted(history) == ["loss", "sparse_categorical_accuracy", "val_loss", "val_sparse_categorical_accuracy"]
    before, loaded = model.evaluate(raw, LABELS, verbose=0), reloaded(model, tmp_path)
    assert loaded.evaluate(raw, LABELS, verbose=0) == pytest.approx(before, rel=1e-4)
    assert ANY_TASK[name].from_preset(str(tmp_path / "preset")).__class__ is task.__class__
    with pytest.warns(UserWarning, match="no known match .keep_activation=True keeps it"):
        logits = heteroscedastic(task, clone=True, keep_activation=False)
    logits.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for other in (homoscedastic(loaded), logits):
        assert other.predict(raw, verbose=0).shape == (len(raw), UNITS)
        keras_het.check(other)
    plain = keras.Model(task.input, task.output)
    assert type(heteroscedastic(plain)) is type(plain)
    task.preprocessor = None
    assert heteroscedastic(task).preprocessor is None


@pytest.mark.parametrize("name", ["ViT", "BERT"])
def test_a_preset_loads_with_its_head_in_a_new_process(name, tmp_path):
    task, raw, model = converted_preset(name, tmp_path)
    model.fit(raw, LABELS, batch_size=8, verbose=0)
    model.save_to_preset(str(tmp_path / "new"))
    np.save(tmp_path / "x.npy", raw)
    arguments = [str(tmp_path / file) for file in ("new", "x.npy", "outputs.npy")]
    kinds = [type(task).__name__, ANY_TASK[name].__name__]
    python("-c", PREDICT_PRESET, *arguments, *kinds, check=True)
    expected = model.predict(raw, verbose=0)
    assert_same_arrays(np.load(tmp_path / "outputs.npy"), [expected, expected])
    loaded = ANY_TASK[name].from_preset(str(tmp_path / "new"), dtype="bfloat16", preprocessor=None)
    assert (loaded.backbone.compute_dtype, loaded.preprocessor) == ("bfloat16", None)
    assert_allclose(loaded.predict(task.preprocessor(raw), verbose=0), expected, atol=0.05)
    with refuses("`num_classes` must be left out: the head of the preset is converted"):
        ANY_TASK[name].from_preset(str(tmp_path / "new"), num_classes=3)
    if name == "BERT":  # a task without a converted head reads the backbone alone
        assert type(models.BertMaskedLM.from_preset(str(tmp_path / "new"))) is models.BertMaskedLM


def test_a_task_that_no_preset_can_name_is_saved_as_the_error_says(tmp_path, monkeypatch):
    inputs = keras.Input((4,))
    model = preprocessing_model()(inputs, keras.layers.Dense(3)(inputs), None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotImplementedError, match="KerasHub loads a preset as") as error:
        model.save_to_preset("preset")
    save, load = re.findall(r"`(\S+?\(\"model.keras\"\))`", str(error.value))
    eval(save)
    assert_same_arrays(eval(load).get_weights(), model.get_weights())


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="the format for which TensorFlow needs nothing else")
def test_an_exported_model_takes_what_the_preprocessor_makes(tmp_path):
    import tensorflow as tf

    task, raw, model = converted_preset("ViT", tmp_path)
    model.export(str(tmp_path / "exported"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    assert_allclose(exported.serve(task.preprocessor(raw)).numpy(), model.predict(raw, verbose=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ANY_TASK)
def test_a_preset_with_other_classes(name, tmp_path):
    model = heteroscedastic(from_preset(name, tmp_path, num_classes=7), 2, seed=0)
    assert model.output_shape == (None, 7)
    check_fit(model, TASKS[name][1](), LABELS)


@pytest.mark.skipif(not OTHERS, reason="no other backend is installed")
@pytest.mark.parametrize("name", ANY_TASK)
def test_a_file_predicts_the_same_on_another_backend(name, tmp_path):
    model, x = heteroscedastic(from_preset(name, tmp_path), 2, seed=0), TASKS[name][1]()
    check_fit(model, x, LABELS)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", x)
    for backend in OTHERS:
        files = [str(tmp_path / name) for name in ("model.keras", "x.npy", "outputs.npy")]
        python("-c", PREDICT, *files, check=True, KERAS_BACKEND=backend)
        assert_allclose(np.load(tmp_path / "outputs.npy"), model.predict(x, verbose=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ViT", "BERT"])
def test_only_lora_weights_and_the_head_train(name, tmp_path):
    task = from_preset(name, tmp_path)
    task.backbone.enable_lora(2)
    model = heteroscedastic(task, 2, seed=0)
    head = {id(weight) for weight in model.layers[-1].trainable_weights}
    of_backbone = [weight.path for weight in model.trainable_weights if id(weight) not in head]
    assert of_backbone == [weight.path for weight in task.backbone.trainable_weights]
    # Keras also trains the biases of LoRA's layers.
    assert all("lora" in path or path.endswith("bias") for path in of_backbone)
    assert any("lora" in path for path in of_backbone)
    frozen = [weight.numpy() for weight in task.backbone.non_trainable_weights]
    check_fit(model, TASKS[name][1](), LABELS)
    assert_same_arrays(task.backbone.non_trainable_weights, frozen)
    with refuses("`clone` must be False"):
        heteroscedastic(task, clone=True)


@pytest.mark.parametrize("name", ["ViT", "BERT"])
def test_analysis_takes_raw_inputs_as_predict_does(name):
    task, raw = sharpen(TASKS[name][0]()), TASKS[name][1]()
    model, x = heteroscedastic(task, 2, seed=0), task.preprocessor(raw)
    expected = keras_het.explain.covariance(keras.Model(model.input, model.output), x)
    assert_allclose(keras_het.explain.covariance(model, raw, batch_size=5), expected, rtol=1e-4, atol=1e-6)
    batches = ((raw[i : i + 5], LABELS[i : i + 5]) for i in range(0, len(raw), 5))
    assert_allclose(keras_het.explain.covariance(model, batches), expected, rtol=1e-4, atol=1e-6)
    flips = keras_het.layers.NoiseTransition(UNITS)
    whole = preprocessing_model()(model.input, flips(model.output), task.preprocessor)
    score = keras_het.explain.noisy_nll(keras.Model(whole.input, whole.output), x, LABELS)
    assert keras_het.explain.noisy_nll(whole, raw, LABELS, batch_size=5) == pytest.approx(score, rel=1e-4)


@pytest.mark.filterwarnings("ignore:__array__")  # `pytest.warns` records Keras' warning and raises it as an error
def test_features_of_texts_are_the_mean_over_the_tokens_without_padding():
    task, texts = sharpen(bert()), np.array(["the quick", "a lazy dog slept", "fox"])
    inputs = task.preprocessor(texts)
    tokens, mask = task.backbone.predict(inputs, verbose=0)["sequence_output"], to_numpy(inputs["padding_mask"])
    assert mask.sum(axis=1).tolist() == [4, 6, 3]
    expected = [row[: mask.sum()].mean(axis=0) for row, mask in zip(tokens, mask, strict=True)]
    for model in (task, heteroscedastic(task, 2, seed=0)):
        assert_allclose(keras_het.explain.features(model, texts, pooling="mean"), expected, rtol=1e-5, atol=1e-6)
        for call, *batch_size in ((keras_het.explain.features,), (trained_features, 2)):
            with pytest.warns(UserWarning, match="'pooled_dense', a pooler of one token.*pooling=\"mean\""):
                pooled = call(model, texts, *batch_size)
            assert_allclose(pooled, task.backbone.predict(inputs, verbose=0)["pooled_output"], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The features are outputs of 'pooled_dense'")
@pytest.mark.parametrize("name", ["ResNet", "BERT"])
def test_labels_are_cleaned_on_the_features_of_a_task(name):
    make, raw = TASKS[name]
    task, x = sharpen(make(activation="softmax")), raw()
    if name == "ResNet":
        x[::2] //= 4  # else what differs most between random images need not be learnable
    before, features = task.get_weights(), keras_het.explain.features(task, x)
    largest = np.linalg.svd(features - features.mean(axis=0))[0][:, 0]  # what differs most, so that it can be learned
    labels = (largest > np.median(largest)).astype(int)
    found = keras_het.labels.clean(task, x, labels, folds=2, verbose=0)
    assert found.model.preprocessor is not None
    assert found.model.predict(x, verbose=0).shape == (len(x), 2)
    alone = keras_het.labels.clean(None, features, labels, folds=2, verbose=0)
    assert_allclose(found.model.predict(x, verbose=0), alone.model.predict(features, verbose=0), rtol=1e-4, atol=1e-5)
    assert_same_arrays(task.weights, before)


@pytest.mark.parametrize("name", ["BERT", "ResNet"])
def test_early_learning_gets_preprocessed_inputs(name):
    make, raw = TASKS[name]
    x = raw()

    def make_model():
        task = make()
        return compiled(task, keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    data = read(x, np.arange(len(x)) % make().output_shape[-1])
    fitted = Trainer(make_model, batch_size=8, verbose=0)(EarlyLearning(), data, data, seed=0, epochs=2)
    assert fitted.scores.shape == (2, len(x))
    assert_allclose(fitted.probabilities.sum(axis=1), 1.0, rtol=1e-5)
