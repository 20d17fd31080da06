"""`tune`: the epoch, the ends of a list, what it shows, and its errors."""

import keras
import numpy as np
import pytest

import keras_het
from keras_het.layers import (
    HeteroscedasticDense,
)
from keras_het.training.held_out import HeldOut, clearly_larger

pytestmark = pytest.mark.once

rng = np.random.default_rng(0)
X = rng.normal(size=(50, 4)).astype("float32")
RIGHT = X[:, :3].argmax(1)
LABELS = (RIGHT + (rng.random(50) < 0.3)) % 3
SPARSE, ONE_HOT = keras.losses.SparseCategoricalCrossentropy, keras.losses.CategoricalCrossentropy


def model_of(*layers, loss, metrics=("accuracy",)):
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(keras.optimizers.Adam(0.05), loss, metrics=list(metrics))
    return model


def make_model(rate):
    keras.utils.set_random_seed(0)
    model = model_of(HeteroscedasticDense(3, seed=0), loss=SPARSE(from_logits=True))
    model.optimizer.learning_rate = rate
    return model


class Scores(keras.callbacks.Callback):
    """The accuracy on the validation labels after every epoch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_epoch_end(self, epoch, logs=None):
        self.found.append(HeldOut((X[30:], LABELS[30:]), "accuracy")(self.model))


def test_the_best_epoch_is_kept_and_the_last_if_asked():
    for epoch in ("best", "last"):
        seen, data = Scores(), {"x": X[:30], "y": LABELS[:30], "validation_data": (X[30:], LABELS[30:])}
        found = keras_het.tune(
            make_model, [0.5], **data, criterion="accuracy", epoch=epoch, epochs=8, callbacks=[seen], verbose=0
        )
        assert len(seen.found) == 8
        (trial,) = found.table
        assert trial.epoch == (np.argmax(seen.found) + 1 if epoch == "best" else 8)
        assert trial.score == seen.found[trial.epoch - 1]
        assert trial.score == pytest.approx(HeldOut((X[30:], LABELS[30:]), "accuracy")(found.model))
    assert len(set(seen.found)) > 1


NOTHING = np.zeros((4, 1))
ONCE = {"validation_data": (NOTHING, NOTHING), "epoch": "last", "epochs": 1, "verbose": 0}


def constant(value):
    """A model that returns `value`, whatever it is fitted to."""
    scale = keras.layers.Rescaling(0.0, offset=float(value))
    model = keras.Sequential([keras.Input((1,)), scale, keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def test_mode_says_what_is_better():
    def size(labels, predictions):
        return np.abs(predictions).mean(-1)

    small, large = (
        keras_het.tune(constant, (0.001, 0.5), NOTHING, NOTHING, **ONCE, criterion=size, mode=mode, extend=False)
        for mode in ("auto", "max")
    )
    assert (small.value, large.value, small.criterion) == (0.001, 0.5, "size")


def distance_to(target):
    return lambda labels, predictions: np.square(np.log(predictions / target))


@pytest.mark.parametrize(
    ("values", "target", "tried"),
    [
        ((1.0, 2.0), 16.0, [1, 2, 4, 8, 16, 32]),
        ((4.0, 2.0), 0.5, [0.25, 0.5, 1, 2, 4]),
        ((1.0, 3.0, 9.0), 3.0, [1, 3, 9]),
        ((1.0, 10.0), 1e30, [10.0**n for n in range(8)]),
        ((2, 3), 6.0, [2, 3, 4, 5, 6, 7]),
        ((2, 1), 1e-3, [1, 2]),
        ((5.0,), 100.0, [5]),
        ((True, 3.0), 100.0, [True, 3]),
    ],
)
def test_a_list_goes_on_while_the_best_is_at_its_end(values, target, tried):
    found = keras_het.tune(constant, values, NOTHING, NOTHING, **ONCE, criterion=distance_to(target))
    np.testing.assert_allclose([trial.value for trial in found.table], tried)
    assert found.value == min(tried, key=lambda value: np.abs(np.log(value / target)))
    assert found.model.predict(NOTHING, verbose=0)[0, 0] == pytest.approx(found.value)
    short = keras_het.tune(constant, values, NOTHING, NOTHING, **ONCE, criterion=distance_to(target), extend=False)
    assert len(short.table) == len(values)


def test_values_may_be_anything():
    settings = [{"value": 2.0, "name": "two"}, {"value": 3.0, "name": "three"}]
    found = keras_het.tune(lambda s: constant(s["value"]), settings, NOTHING, NOTHING, **ONCE, criterion=distance_to(3))
    assert found.value is settings[1]
    assert "{'value': 3.0, 'name': 'three'}  " in str(found)
    assert [label.get_text() for label in found.plot().axes[0].get_xticklabels()] == [
        str(setting) for setting in settings
    ]


def test_it_shows_a_bar_a_table_and_a_plot(capsys):
    found = keras_het.tune(constant, (1.0, 2.0), NOTHING, NOTHING, **ONCE | {"verbose": 1}, criterion=distance_to(2.0))
    out = capsys.readouterr().out
    assert "3/3" in out
    lines = str(found).splitlines()
    assert lines == [line for line in out.splitlines() if line][-4:]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["1", "0.4805", "1"],
        ["2", "0.0000", "1"],
        ["4", "0.4805", "1"],
    ]
    assert ["chosen" in line for line in lines] == [False, False, True, False]
    axes = found.plot().axes[0]
    np.testing.assert_allclose(
        axes.lines[0].get_xydata(), [[1, np.log(2) ** 2], [2, 0], [4, np.log(2) ** 2]], atol=1e-6
    )
    assert axes.get_xscale() == "log"
    keras_het.tune(constant, (1.0,), NOTHING, NOTHING, **ONCE | {"epoch": "best"}, criterion=distance_to(2.0))
    assert capsys.readouterr().out == ""


def test_of_equal_values_the_best_is_marked():
    seen = []

    def make(value):
        seen.append(value)
        return constant((3.0, 1.0, 2.0)[len(seen) - 1])

    found = keras_het.tune(make, [5.0] * 3, NOTHING, NOTHING, **ONCE, criterion=distance_to(1.0))
    assert found.best is found.table[1]
    assert [line.endswith("<- chosen") for line in str(found).splitlines()] == [False, False, True, False]
    assert found.model.predict(NOTHING, verbose=0)[0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize("share", ["a layer", "the first model"])
def test_models_that_share_variables_are_refused(share):
    layer, models = (
        keras.layers.Dense(4),
        [model_of(keras.layers.Dense(3), loss=SPARSE(from_logits=True)) for _ in range(2)],
    )

    def make(value):
        if share == "the first model":
            return models[value % 2]
        return model_of(layer, keras.layers.Dense(3), loss=SPARSE(from_logits=True))

    with pytest.raises(ValueError, match=r"`make_model` must make new layers and a new.* Received: the variable"):
        keras_het.tune(make, [1, 2, 3], X, LABELS, validation_data=(X, LABELS), epochs=1, verbose=0)


def test_a_shared_optimizer_is_refused():
    optimizer = keras.optimizers.Adam()

    def make(value):
        model = make_model(value)
        model.compile(optimizer, SPARSE(from_logits=True))
        return model

    with pytest.raises(ValueError, match=r"and a new optimizer at every.* Received: the variable"):
        keras_het.tune(make, [0.1, 0.2], X, LABELS, validation_data=(X, LABELS), epochs=1, verbose=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch and NumPy
def test_an_error_beyond_the_list_ends_it():
    def make(value):
        if value > 5:
            raise ValueError("too large")
        return constant(value)

    with pytest.warns(UserWarning, match="stays at 4: 8, beyond the list, failed with: too large"):
        found = keras_het.tune(make, (2.0, 4.0), NOTHING, NOTHING, **ONCE, criterion=distance_to(100.0))
    assert found.value == 4.0
    with pytest.raises(ValueError, match="too large"):
        keras_het.tune(make, (2.0, 8.0), NOTHING, NOTHING, **ONCE, criterion=distance_to(100.0))


def test_callbacks_see_the_score_and_their_weights_do_not_stay():
    stop = keras.callbacks.EarlyStopping("val_accuracy", patience=2, mode="min", restore_best_weights=True)  # the worst
    found = keras_het.tune(
        make_model,
        [0.5],
        X[:30],
        RIGHT[:30],
        validation_data=(X, RIGHT),
        criterion="accuracy",
        epochs=30,
        batch_size=5,
        callbacks=[stop],
        verbose=0,
    )
    assert 0 < stop.stopped_epoch < 29
    assert found.best.score == pytest.approx(HeldOut((X, RIGHT), "accuracy")(found.model))


def test_callbacks_see_the_score_where_the_last_epoch_counts():
    stop = keras.callbacks.EarlyStopping("val_loss", patience=0, mode="max")
    found = keras_het.tune(
        make_model,
        [0.5],
        X,
        RIGHT,
        validation_data=(X, RIGHT),
        epoch="last",
        epochs=5,
        batch_size=5,
        callbacks=[stop],
        verbose=0,
    )
    assert found.best.epoch == 2


def two_outputs(value):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, [keras.layers.Dense(3)(inputs), keras.layers.Dense(3)(inputs)])
    model.compile("sgd", [SPARSE(from_logits=True), SPARSE(from_logits=True)])
    return model


class Script(keras.callbacks.Callback):
    """Sets the kernel of every epoch."""

    def __init__(self, kernels):
        super().__init__()
        self.kernels = kernels

    def on_epoch_begin(self, epoch, logs=None):
        self.model.layers[-1].set_weights([self.kernels[epoch]])


GUESS, SURE, HALF = np.zeros((3, 3)), 30.0 * np.eye(3), np.diag([30.0, 0.0, 0.0])
TRUE = np.arange(60) % 3
FLIPPED = np.where(np.arange(60) < 6, (TRUE + 1) % 3, TRUE)  # 10%


def scripted(kernels, criterion, y=FLIPPED, loss=SPARSE, **arguments):
    """The `TuningResult` of a model whose kernels are given, by labels of which `SURE` knows nine in ten."""

    def make(value):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.0), loss(from_logits=True, **arguments))
        return model

    x, script = np.eye(3, dtype="float32")[TRUE][: len(y)], Script(kernels)
    return keras_het.tune(
        make, [1], x, y, validation_data=(x, y), criterion=criterion, epochs=len(kernels), callbacks=[script], verbose=0
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch and NumPy
@pytest.mark.parametrize("loss", ["integers", "vectors", "one is ignored"])
def test_a_later_epoch_that_is_clearly_more_accurate_is_named(loss):
    """The likelihood prefers a model that guesses, for the other is sure also of what is wrong."""
    labels = {
        "integers": (FLIPPED, SPARSE, {}),
        "vectors": (np.eye(3)[FLIPPED], ONE_HOT, {}),
        "one is ignored": (np.where(np.arange(60) == 59, -1, FLIPPED), SPARSE, {"ignore_class": -1}),
    }
    y, kind, arguments = labels[loss]
    accuracies = (0.333, 0.883) if arguments else (0.333, 0.9)
    rule = (
        f"Epoch 1, the best by loss, has an accuracy of {accuracies[0]:.3f} on the validation labels, and epoch 3 "
        f'{accuracies[1]:.3f}, more by over two standard errors: try criterion="accuracy", and more epochs'
    )
    with pytest.warns(UserWarning, match=rule):
        found = scripted([GUESS, HALF, SURE, SURE], "loss", y, kind, **arguments)
    assert found.best.epoch == 1
    assert scripted([GUESS, HALF, SURE, SURE], "accuracy", y, kind, **arguments).best.epoch == 3


def test_no_epoch_is_named_that_may_be_better_by_chance():
    for kernels in ([SURE, GUESS], [SURE, -SURE]):
        assert scripted(kernels, "loss", TRUE).best.epoch == 1  # and no warning
    assert not clearly_larger(np.ones(4), np.array([1.0, 0.0, 0.0, 1.0]))
    assert clearly_larger(np.ones(8), np.array([1.0, 0.0] * 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch and NumPy
def test_a_model_that_learned_nothing_or_less_than_the_class_means_is_no_result():
    """As in `choose`; nothing is said where a later epoch is better, of which the warning speaks."""
    with pytest.raises(ValueError, match="must predict held-out labels better than the largest class does: train for"):
        scripted([GUESS, GUESS], "loss", TRUE)
    with pytest.warns(UserWarning, match=r"predicts 33.3% of the held-out labels, and the nearest class .* 100.0%"):
        scripted([HALF], "accuracy", TRUE)


def test_a_best_epoch_near_the_last_asks_for_more():
    late = scripted([GUESS] * 19 + [SURE], "accuracy")
    assert late.reason == "The best epoch is 20 of 20: more epochs may be better."
    assert str(late).splitlines()[-1] == late.reason
    for kernels in ([GUESS] * 17 + [SURE] * 3, [SURE] * 20):
        assert scripted(kernels, "accuracy").reason == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"values": ()}, "`values` must have at least one. Received: none"),
        (
            {"values": 0.1},
            "`values` must be a list of what `make_model` takes, such as [0.1, 1.0]. Received: values=0.1",
        ),
        ({"values": {"rate": [0.1]}}, "`values` must be a list of what"),
        (
            {"make_model": keras.Sequential()},
            "`make_model` must be a function that makes a new compiled model. Received: a Sequential",
        ),
        ({"make_model": lambda value: None}, "`make_model` must return a compiled model. Received: a NoneType"),
        ({"y": None}, "`y` must be given for arrays. Received: y=None"),
        (
            {"validation_data": None, "validation_split": 0.2},
            "shuffle, class_weight, sample_weight. Received: validation_split (`validation_data`?)",
        ),
        (
            {"validation_data": (X, LABELS + 1)},
            "`validation_data` must have labels in [0, 2], the classes of the model. Received: 3",
        ),
        (
            {"criterion": "nll"},
            '`criterion` must be "loss", "accuracy", or a function (labels, predictions). Received: criterion=\'nll\'',
        ),
        ({"mode": "largest"}, "`mode` must be one of 'auto', 'min', 'max'"),
        ({"epoch": 3}, "`epoch` must be one of 'best', 'last'"),
        ({"extend": 1}, "`extend` must be True or False"),
        ({"verbose": "loud"}, "`verbose` must be one of 0, 1, 2"),
        ({"epochs": 0}, "`epochs` must be an integer at least 1"),
        (
            {"criterion": keras.metrics.SparseCategoricalAccuracy()},
            "or a function (labels, predictions). Received: criterion=<",
        ),
        ({"validation_data": (X, LABELS, np.ones(50))}, "`validation_data` must be (x, y), for weights do not count"),
        (
            {"validation_data": (X, LABELS[:7])},
            "`validation_data` must have a label for each example. Received: 7 labels of 50",
        ),
        (
            {
                "make_model": lambda value: model_of(keras.layers.Dense(1), loss="mse", metrics=()),
                "criterion": "accuracy",
            },
            '`criterion` must be a function, or "loss", where the loss of the model does not tell what it predicts',
        ),
        ({"validation_data": X}, "`validation_data` must be (x, y) or a data set"),
        ({"validation_data": (X[:0], LABELS[:0])}, "`validation_data` must have at least one example. Received: none"),
        (
            {"make_model": two_outputs, "y": [LABELS, LABELS]},
            "`make_model` must make models that are compiled with one loss. Received: 2",
        ),
        (
            {"make_model": two_outputs, "y": [LABELS, LABELS], "criterion": distance_to(1)},
            "models of one output. Received: 2 outputs",
        ),
        (
            {"criterion": lambda labels, predictions: np.nan},
            "`values` must have one with a finite <lambda>. Received: nan of 0.1",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else None,
)
def test_errors_say_what_is_wrong(arguments, text):
    given = {
        "make_model": make_model,
        "values": [0.1],
        "x": X,
        "y": LABELS,
        "validation_data": (X, LABELS),
        "epochs": 1,
        "verbose": 0,
        **arguments,
    }
    with pytest.raises(ValueError) as error:
        keras_het.tune(**given)
    assert text in str(error.value)


# torch is asked for a copy by NumPy, and its warning is an error inside of pytest.warns
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_ctrl_c_keeps_the_values_that_are_finished():
    def interrupted(value):
        if value == 0.3:
            raise KeyboardInterrupt
        return make_model(value)

    data = {"x": X, "y": RIGHT, "validation_data": (X, RIGHT)}
    with pytest.warns(UserWarning, match="`tune` was interrupted: the best of the 2 values that were finished"):
        found = keras_het.tune(interrupted, (0.1, 0.2, 0.3, 0.4), **data, epochs=8, verbose=0)
    assert len(found.table) == 2
    with pytest.raises(KeyboardInterrupt):
        keras_het.tune(interrupted, (0.3, 0.1), **data, epochs=1, verbose=0)
