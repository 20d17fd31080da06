"""The schedule of the share that a loss keeps, in `fit`."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import CoTeaching, KeptShare, SelfPacedCrossentropy

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(24, 5)).astype("float32"), RNG.integers(3, size=24)


def made(kind="self-paced", metrics=(), kept_share=0.5):
    """A model that does not learn, so that its losses by epoch are known.

    Of two networks it gives their stack, in validation, too.
    """
    layers = [keras.layers.Dense(3)] if kind == "self-paced" else [keras.layers.Dense(6), keras.layers.Reshape((2, 3))]
    model = keras.Sequential([keras.Input((5,)), *layers])
    loss = (SelfPacedCrossentropy if kind == "self-paced" else CoTeaching)(kept_share, from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss.attach(model), metrics=list(metrics))
    return model


def share_of(model):
    return float(ops.convert_to_numpy(model.loss.kept_share))


def losses_of(model):
    """Crossentropies, `(N, M)`, float64."""
    log_p = special.log_softmax(model.predict(X, verbose=0).reshape(24, -1, 3).astype("float64"), axis=-1)
    return -log_p[np.arange(24), :, LABELS]


def kept_means(losses, shares):
    """The loss of one batch of all examples by epoch: two networks choose for each other, one by its moving average."""
    threshold = np.inf
    for share in shares:
        count = round(24 * share)
        if losses.shape[1] == 2:
            yield np.mean([losses[np.argsort(losses[:, 1 - m])[:count], m] for m in (0, 1)])
        elif share == 1.0:
            yield losses.mean()
        else:
            percentile = np.sort(losses[:, 0])[count - 1]
            threshold = percentile if np.isinf(threshold) else 0.95 * threshold + 0.05 * percentile
            yield losses[losses <= threshold].mean()


def test_the_schedule_by_hand():
    assert [KeptShare(4, exponent=2.0).share(epoch, 0.6) for epoch in (0, 2, 4, 9)] == pytest.approx(
        [1.0, 0.9, 0.6, 0.6]
    )
    assert KeptShare(0).share(0, 0.6) == pytest.approx(0.6)
    assert [KeptShare(0, burn_in=2).share(epoch, 0.6) for epoch in (0, 1, 2)] == pytest.approx([1.0, 1.0, 0.6])
    assert [KeptShare(2, burn_in=2).share(epoch, 0.6) for epoch in (1, 2, 3, 4)] == pytest.approx([1.0, 1.0, 0.8, 0.6])


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["self-paced", "co-teaching"])
def test_training_keeps_less_by_epoch_and_validation_keeps_all(kind):
    model = made(kind)
    seen = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(before=logs["kept_share"]))
    arguments = {"batch_size": 24, "epochs": 4, "verbose": 0, "validation_data": (X, LABELS)}
    history = model.fit(X, LABELS, callbacks=[KeptShare(2), seen], **arguments).history
    assert history["kept_share"] == history["before"] == pytest.approx([1.0, 0.75, 0.5, 0.5])
    losses = losses_of(model)
    assert history["loss"] == pytest.approx(list(kept_means(losses, history["kept_share"])), rel=1e-5)
    assert history["val_loss"] == pytest.approx([losses.mean()] * 4, rel=1e-5)
    assert share_of(model) == 1.0
    assert model.evaluate(X, LABELS, verbose=0) == pytest.approx(losses.mean(), rel=1e-5)


def test_the_threshold_is_carried_by_training_and_not_by_validation():
    """A model that does not learn has one percentile, and the average stays there; validation data have another."""
    model = made()
    arguments = {"batch_size": 24, "epochs": 3, "verbose": 0, "validation_data": (10 * X, LABELS)}
    model.fit(X, LABELS, callbacks=[KeptShare(0)], **arguments)
    assert float(ops.convert_to_numpy(model.loss.threshold)) == pytest.approx(
        np.sort(losses_of(model)[:, 0])[11], rel=1e-4
    )


@pytest.mark.smoke
def test_a_resumed_run_goes_on():
    model = made(kept_share=0.7)
    history = model.fit(X, LABELS, initial_epoch=2, epochs=4, verbose=0, callbacks=[KeptShare(3)]).history
    assert history["kept_share"] == pytest.approx([0.8, 0.7])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: KeptShare(-1), "`num_epochs` must be an integer at least 0. Received: num_epochs=-1"),
        (
            lambda: KeptShare(exponent=0),
            "`exponent` must be a finite float32 number greater than 0. Received: exponent=0",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == text


def test_a_model_with_another_loss_is_refused():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")], name="plain")
    model.compile("sgd", "sparse_categorical_crossentropy")
    rule = "The model must have a loss that keeps a share of the examples, such as benchmarks.baselines.CoTeaching"
    with pytest.raises(ValueError, match=f"{rule}. Received: model='plain', loss='sparse_categorical_crossentropy'"):
        model.fit(X, LABELS, verbose=0, callbacks=[KeptShare()])


def test_without_the_callback_the_share_is_that_of_the_loss_from_the_start():
    model = made("co-teaching")
    loss = model.fit(X, LABELS, batch_size=24, verbose=0).history["loss"]
    assert loss == pytest.approx(list(kept_means(losses_of(model), [0.5])), rel=1e-5)


def test_a_loss_that_is_attached_to_another_model_is_refused():
    model, other = made(), made()
    model.compile("sgd", other.loss)
    with pytest.raises(ValueError, match="must be attached to the model that it trains"):
        model.fit(X, LABELS, verbose=0, callbacks=[KeptShare()])
