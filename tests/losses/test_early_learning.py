"""Early-learning regularisation, against NumPy in float64, and how the index of an example comes to it."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from keras_het.losses import EarlyLearningRegularizedCrossentropy, with_index
from tests.losses import indexed_contract as contract

EXAMPLES, UNITS = 12, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, 5)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)


def make_loss(**kwargs):
    return EarlyLearningRegularizedCrossentropy(EXAMPLES, UNITS, **{"from_logits": True, **kwargs})


def make_model(kind="sequential"):
    if kind == "sequential":
        return keras.Sequential([keras.Input((5,)), keras.layers.Dense(UNITS)])
    inputs = keras.Input((5,))
    return keras.Model(inputs, keras.layers.Dense(UNITS)(inputs))


def oracle(memory, logits, labels, strength, momentum):
    """The loss of every example, and what is remembered after it, float64."""
    log_p = special.log_softmax(np.asarray(logits, "float64"), axis=-1)
    memory = momentum * memory + (1 - momentum) * np.exp(log_p)
    penalty = np.log(1 - np.sum(memory * np.exp(log_p), axis=-1))
    return strength * penalty - log_p[np.arange(len(labels)), labels], memory


def test_values_and_memory_of_many_steps():
    loss, memory = make_loss(reduction="none").attach(make_model()), np.zeros((EXAMPLES, UNITS))
    for _ in range(5):
        index = RNG.permutation(EXAMPLES)[:7]
        logits = RNG.normal(size=(7, UNITS)).astype("float32")
        expected, memory[index] = oracle(memory[index], logits, LABELS[index], 3.0, 0.7)
        weights = with_index(EXAMPLES)[index]
        np.testing.assert_allclose(ops.convert_to_numpy(loss(LABELS[index], logits, weights)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ops.convert_to_numpy(loss.memory), memory, atol=1e-6)


@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_fit_remembers_what_was_predicted(kind):
    """With a learning rate of zero the memory after n epochs is (1 - beta^n) p, whatever the order of the examples."""
    model, loss = make_model(kind), make_loss()
    model.compile(keras.optimizers.SGD(0.0), loss.attach(model), metrics=["accuracy"])
    model.fit(X, LABELS, sample_weight=with_index(EXAMPLES), batch_size=5, epochs=3, verbose=0, validation_data=(X, LABELS))
    p = special.softmax(model.predict(X, verbose=0), axis=-1)
    np.testing.assert_allclose(ops.convert_to_numpy(loss.memory), (1 - 0.7**3) * p, rtol=1e-4)


def test_the_contract_of_indexed_losses(tmp_path):
    contract.check_unattached_and_unindexed_are_refused(make_loss)
    contract.check_without_index_it_is_the_plain_crossentropy(make_loss)
    contract.check_labels_of_any_form_and_dtype_agree(make_loss)
    contract.check_ignored_examples_and_weights(make_loss)
    contract.check_empty_and_single_batches(make_loss)
    contract.check_saved_and_loaded(make_loss, tmp_path)
