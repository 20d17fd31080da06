"""What holds of every loss that knows the index of an example.

A test module calls each check with `make(**kwargs)`, a loss of N, K.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.losses import with_index

EXAMPLES, UNITS, FEATURES = 12, 4, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
LOGITS = RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")


def make_model(**kwargs):
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(UNITS, **kwargs)])


def number(tensor):
    return float(ops.convert_to_numpy(ops.cast(tensor, "float32")))


def remembered(loss):
    """The weights of a loss, without the spare row of those that go by the index of an example."""
    values = [variable.numpy() for variable in loss.state.variables]
    return [value[:EXAMPLES] if len(value) == EXAMPLES + 1 else value for value in values]


def without_state(loss, *arguments):
    """A loss whose assignments are dropped, so that it is a function, also inside a program of JAX."""
    with keras.StatelessScope():
        return loss(*arguments)


def check_unattached_and_unindexed_are_refused(make):
    with pytest.raises(ValueError, match="must be attached to the model that it trains"):
        make()(LABELS, LOGITS, with_index(EXAMPLES))
    with pytest.raises(ValueError, match="`sample_weight` must have the index of every example"):
        make().attach(make_model())(LABELS, LOGITS)


def check_without_index_it_is_the_plain_crossentropy(make):
    loss = make().attach(make_model())
    loss(LABELS, LOGITS, with_index(EXAMPLES))
    before = remembered(loss)
    plain = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert number(loss(LABELS, LOGITS)) == pytest.approx(number(plain(LABELS, LOGITS)), rel=1e-6)
    for after, value in zip(remembered(loss), before, strict=True):
        np.testing.assert_array_equal(after, value)


def check_labels_of_any_form_and_dtype_agree(make):
    forms = {"(N,)": LABELS, "(N, 1)": LABELS[:, None], "(N, K)": np.eye(UNITS)[LABELS]}
    values = [number(make().attach(make_model())(form, LOGITS, with_index(EXAMPLES))) for form in forms.values()]
    assert values == pytest.approx([values[0]] * 3, rel=1e-6)
    half = make(dtype="mixed_bfloat16").attach(make_model())(LABELS, LOGITS, with_index(EXAMPLES))
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"
    assert number(half) == pytest.approx(values[0], rel=1e-2)


def check_ignored_examples_and_weights(make):
    """An ignored example counts neither in the sum nor in the mean, and nothing is remembered of it."""
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, -1, LABELS)
    kept = labels >= 0
    loss, all_, some = (
        make(**kwargs).attach(make_model()) for kwargs in ({"ignore_class": -1}, {"reduction": "none"}, {})
    )
    each = ops.convert_to_numpy(all_(LABELS, LOGITS, with_index(EXAMPLES)))
    weights = np.linspace(0.5, 1.5, EXAMPLES)
    value = number(loss(labels, LOGITS, with_index(EXAMPLES, weights)))
    assert value == pytest.approx(np.mean(each[kept] * weights[kept]), rel=1e-5)
    some(LABELS[kept], LOGITS[kept], with_index(EXAMPLES)[kept])
    for ours, theirs in zip(remembered(loss), remembered(some), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert np.isnan(number(loss([9], LOGITS[:1], with_index(EXAMPLES)[:1])))
    assert all(np.isfinite(variable.numpy()).all() for variable in loss.state.variables)


def check_saved_and_loaded(make, tmp_path):
    """The state comes back with the model, and with its weights alone; the config is the loss."""
    model, loss = make_model(), make()
    model.compile("sgd", loss.attach(model))
    model.fit(X, LABELS, sample_weight=with_index(EXAMPLES), epochs=2, verbose=0, shuffle=False)
    assert type(loss).from_config(loss.get_config()).get_config() == loss.get_config()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    loaded.loss.attach(loaded)
    fresh = make_model()
    fresh.compile("sgd", make().attach(fresh))
    fresh.load_weights(tmp_path / "model.keras")
    for other in (loaded, fresh):
        for ours, theirs in zip(loss.state.variables, other.loss.state.variables, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    histories = [
        one.fit(X, LABELS, sample_weight=with_index(EXAMPLES), verbose=0, shuffle=False).history
        for one in (model, loaded)
    ]
    assert histories[0]["loss"] == pytest.approx(histories[1]["loss"], rel=1e-5)


def check_empty_and_single_batches(make):
    loss = make(reduction="none").attach(make_model())
    for size in (0, 1):
        each = ops.convert_to_numpy(loss(LABELS[:size], LOGITS[:size], with_index(EXAMPLES)[:size]))
        assert each.shape == (size,)
        assert np.isfinite(each).all()
