"""`choose` takes what is better, is cautious in doubt, and says why; and what every call keeps: rows, states, print."""

import functools
import pickle
import random
from warnings import catch_warnings, filterwarnings

import keras
import numpy as np
import pandas
import pytest

import keras_het
from keras_het import callbacks, explain, models
from keras_het.base.seeds import preserve_random_states
from keras_het.explain import noisy_nll
from keras_het.labels import Classifier, choose, clean, corrupt, find_issues
from keras_het.labels.data import read, stratified_folds
from keras_het.labels.methods import METHODS, EarlyLearning, EarlyStopping, Method
from keras_het.labels.synthetic import look_alike_transitions
from keras_het.labels.training.trainer import Trainer
from keras_het.layers import NoiseTransition
from tests.checks import refusals
from tests.common import Batches, assert_same_arrays, compiled, reloaded, texts_of_warnings
from tests.labels.tasks import SHORT, SHORT_TRAININGS, TRUE, Cheat, Constant, Named, X, Y, make_model, maker, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]


def test_a_better_method_is_chosen_and_the_result_prints_the_reason_first():
    result = short(Cheat(), Constant(), y=(y := np.where(np.arange(240) % 5 < 3, np.roll(Y, 7), Y)), epochs=12)
    plain, cheat, constant = result.trials
    assert (result.name, result.position) == ("cheat", 1)
    assert np.mean(cheat.score) > np.mean(plain.score) > np.mean(constant.score)
    log_p = result.model.predict(X, verbose=0)
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1.0, atol=1e-5)
    assert np.mean(log_p.argmax(1) == TRUE) > 0.8
    assert result.model.evaluate(X, y, verbose=0)[1] == pytest.approx(np.mean(log_p.argmax(1) == y), abs=1e-6)
    lines = str(result).splitlines()
    assert (lines[0], lines[1].split("  ")[0]) == (result.reason, "method")
    assert "<- chosen" in lines[3]
    assert lines[5].startswith("The model disagrees with ")
    assert result._repr_html_().count("<tr>") == 4
    assert len(result.plot().axes[0].get_yticks()) == 3
    assert list(result.to_frame().index) == ["early stopping", "cheat", "constant"]
    assert result.to_frame().difference["cheat"] == 0


def test_a_doubt_is_for_the_first_of_the_list():
    result = short(Named("same"), Constant())
    assert result.name == "early stopping"
    result = choose(make_model, X, Y, methods=[Named("same"), EarlyStopping()], **SHORT)
    assert result.name == "same"
    assert result.reason.startswith("same predicts the held-out labels best")  # of equals the first


def test_random_labels_are_not_memorised_and_the_last_epochs_are_said_to_be_the_best():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 6)).astype("float32"), rng.integers(3, size=300)
    with catch_warnings():
        filterwarnings("error", "The model is not clearly better")  # this or the error, by the draw
        with pytest.raises((ValueError, UserWarning), match="clearly better than the majority class"):
            choose(make_model, x, y, **{**SHORT, "epochs": 6})
    slow = maker(lambda: keras.layers.Dense(8, "relu"), rate=0.03)
    assert "The best epoch is close to the last one" in short(make_model=slow, epochs=np.int64(5)).reason


def test_a_training_or_a_function_whose_models_diverge_is_not_chosen():
    class Diverging(Method):
        name = "diverging"

        def sample_weight(self, data):
            return np.full(len(data), np.nan)

    assert short(Diverging()).name == "early stopping"

    def diverging():
        model = make_model()
        model.optimizer.learning_rate = float("nan")
        return model

    result = choose([diverging, make_model], X, Y, criterion="loss", **{**SHORT, "epochs": 6})
    assert result.name == "make_model"
    np.testing.assert_allclose(result.trials[0].probabilities, 1 / 3, rtol=1e-6)


def with_dropout(rate):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dropout(rate, seed=0), keras.layers.Dense(3)])
    return compiled(model, keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def test_a_list_of_functions_is_compared_and_each_is_trained_as_it_is():
    functions = [functools.partial(with_dropout, rate) for rate in (0.95, 0.1)]
    result = choose(functions, X, Y, criterion="loss", **{**SHORT, "epochs": 10})
    assert [trial.name for trial in result.trials] == ["with_dropout(0.95)", "with_dropout(0.1)"]
    assert result.name == "with_dropout(0.1)"
    assert functions[result.position] is functions[1]
    assert np.mean(result.model.predict(X, verbose=0).argmax(1) == TRUE) > 0.85
    assert not np.allclose(np.exp(result.model.predict(X, verbose=0)).sum(1), 1.0)  # its own logits
    p = result.probabilities[np.arange(240), Y]
    assert result.trials[1].score.mean() == pytest.approx(np.log(p).mean(), abs=0.05)
    assert str(result).splitlines()[1].startswith("model")
    assert result.retrain("correct").output_shape == (None, 3)
    twice = choose([lambda: with_dropout(0.1)] * 2, X, Y, **SHORT)
    assert [trial.name for trial in twice.trials] == ["model 0", "model 1"]


def make_candidate(strength):
    keras.utils.set_random_seed(0)
    head = keras.layers.Dense(2, "log_softmax", kernel_regularizer=keras.regularizers.L2(1e-3))
    flips = NoiseTransition(2, regularizer=keras.regularizers.L2(strength))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(16, "tanh"), head, flips])
    return compiled(model, keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def test_a_penalty_of_a_transition_is_chosen_by_the_likelihood_of_noisy_labels():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    x = (rng.normal(size=(400, 2)) + 4 * y[:, None]).astype("float32")
    noisy = corrupt(y, [[0.7, 0.3], [0.0, 1.0]])
    make, few = functools.partial(make_candidate, 0.02), {"epochs": 10, "batch_size": 75, "criterion": "loss"}
    (trial,) = choose([make], x, noisy, folds=2, verbose=0, **few).trials
    fold = stratified_folds(noisy, 2, 0) == 0  # the same training again, whose likelihood is that of noisy labels
    data = read(x, noisy)
    fitted = Trainer(make, **few)(trial.method, data[~fold], data[fold], seed=0, epochs=trial.epoch)
    assert -trial.score[fold].mean() == pytest.approx(noisy_nll(fitted.model, x[fold], noisy[fold]), rel=1e-4)


def test_the_likelihood_chooses_what_predicts_labels_with_the_right_confidence():
    class Sharp(Method):
        name = "sharp"

        def head(self, units, **options):
            return [*super().head(units, **options), keras.layers.Rescaling(20.0)]

    result = short(Sharp(), criterion="loss", epochs=6)
    plain, sharp = result.trials
    assert result.name == "early stopping"
    assert sharp.score.mean() < plain.score.mean() - 0.2
    assert f"{-plain.score.mean():.4f}" in str(result)


def test_weights_count_in_training_and_comparison_and_nothing_of_the_user_changes():
    weights, before = np.where(Y == TRUE, 1.0, 0.0), (X.copy(), Y.copy())  # wrong labels do not count
    result = short(sample_weight=weights, epochs=6)
    assert float(f"{np.average(result.chosen.score, weights=weights):.4f}") > 0.8
    assert np.mean(result.model.predict(X, verbose=0).argmax(1) == TRUE) > 0.85
    assert_same_arrays((X, Y), before)


def test_the_choice_by_votes_predicts_the_classes():
    rng = np.random.default_rng(0)
    right = rng.random((240, 4)) < np.array([0.9, 0.8, 0.8, 0.4])
    votes = np.where(right, TRUE[:, None], rng.integers(3, size=(240, 4)))
    votes[rng.random((240, 4)) < 0.3] = -1
    votes[(votes < 0).all(axis=1), 0] = 0
    result = choose(make_model, X, votes=votes, epochs=8, batch_size=32, folds=2, verbose=0)
    assert [trial.name for trial in result.trials] == [method.name for method in METHODS]
    assert np.mean(result.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.93
    assert result.retrain("correct").output_shape == (None, 3)


def test_a_result_is_pickled_and_its_model_is_saved_and_trains_on(tmp_path):
    result = short()
    copy = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(copy.model.predict(X, verbose=0), result.model.predict(X, verbose=0))
    np.testing.assert_array_equal(copy.retrain().predict(X, verbose=0), result.retrain().predict(X, verbose=0))
    loaded = reloaded(result.model, tmp_path)
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), result.model.predict(X, verbose=0))
    loaded.fit(X, Y, verbose=0)


def test_a_class_with_few_examples_is_warned_of_and_a_class_without_is_one():
    y = np.where(np.arange(240) == 0, 3, Y)
    with texts_of_warnings() as texts:
        result = short(y=y, make_model=maker(units=4))
    assert "Class 3 has fewer examples (1) than folds (3)" in " ".join(texts)
    assert result.model.output_shape == (None, 4)
    assert short(y=np.where(Y == 2, 4, Y), make_model=maker(units=5)).model.output_shape == (None, 5)


def uncompiled():
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])


def of_loss(loss):
    return lambda: compiled(uncompiled(), "adam", loss)


REFUSED = [
    ({"make_model": 3}, "`make_model` must be a function that returns a new compiled model, or a list of such functio"),
    ({"make_model": uncompiled}, "`make_model` must return compiled models. Received: a Sequential that is not compil"),
    ({"make_model": maker(lambda: keras.layers.Reshape((2, 3)))}, "whose last layer reads features (N, D), as after F"),
    ({"make_model": maker(units=4)}, "`make_model` must return models of the 3 classes of `y`. Received: 4 classes"),
    ({"make_model": of_loss("mse")}, 'integer labels: compile(loss="sparse_categorical_crossentropy"). Received: loss'),
    ({"make_model": of_loss("categorical_crossentropy")}, 'compile(loss="sparse_categorical_crossentropy"). Received:'),
    ({"make_model": None}, "on features use labels.clean. Received: None"),
    ({"criterion": "auc"}, "`criterion` must be one of 'accuracy', 'loss'. Received: criterion='auc'"),
    ({"epochs": 0}, "`epochs` must be an integer at least 1. Received: epochs=0"),
    ({"folds": 1}, "`folds` must be an integer at least 2. Received: folds=1"),
    ({"x": X[:2], "y": [0, 1], "folds": 5}, "`folds` must be an integer in [2, 2]. Received: folds=5"),
    ({"methods": [Cheat]}, "`methods` must be a list of `Method` objects with names. R"),
    ({"methods": [Cheat(), Named("CHEAT")]}, "`methods` must have different names. Received: 'cheat' twice"),
    ({"make_model": [make_model], "methods": [Cheat()]}, "`methods` must be left out for a list of functions"),
    ({"make_model": []}, "`make_model` must be a list of at least one function"),
    ({"make_model": [make_model, make_model()]}, "`make_model` must be a list of functions without arguments"),
    ({"sample_weight": np.ones(3)}, "`sample_weight` must have shape (240,). Received: shape (3,)"),
]
GIVEN = {"make_model": make_model, "x": X, "y": Y, **SHORT}


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")
def test_inputs_by_name_reach_early_learning():
    def of_two():
        inputs = {"b": keras.Input((1,), name="p"), "a": keras.Input((1,), name="q")}
        model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Concatenate()([inputs["b"], inputs["a"]])))
        return compiled(model, keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    x = {"b": np.float32(Y == 0)[:, None], "a": np.float32(Y == 1)[:, None]}
    result = choose(of_two, x, Y, methods=[EarlyLearning(), EarlyStopping()], **{**SHORT, "epochs": 6})
    assert len(result.trials) == 2


ONCE = {"epochs": 5, "batch_size": 80, "verbose": 0, "folds": 2}
VERBS = {
    "choose": lambda make, x=X, y=Y, **more: choose(make, x, y, methods=[EarlyStopping()], **ONCE | more),
    "list": lambda make, x=X, y=Y, **more: choose([make], x, y, **ONCE | more),
    "clean": lambda make, x=X, y=Y, **more: clean(make, x, y, **ONCE | more),
}


ROWS = [f"row {i}" for i in range(len(X))]


@pytest.mark.parametrize("verb", VERBS)
def test_one_function_goes_through_every_call_with_data_of_every_form(verb):
    for data in ((X, Y), (pandas.DataFrame(X, ROWS), pandas.Series(Y, ROWS)), (Batches(X, Y), None)):
        model = VERBS[verb](make_model, *data).model
        assert np.mean(model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.6


def draws_after(call):
    keras.utils.set_random_seed(3)
    keras.random.uniform(())  # makes Keras' generator of draws without a seed
    call()
    return random.random(), np.random.random(), float(keras.ops.convert_to_numpy(keras.random.uniform(())))


@pytest.mark.smoke
def test_random_states_are_given_back():
    def seed():
        keras.utils.set_random_seed(9)
        keras.random.uniform(())

    kept = draws_after(lambda: None)
    assert draws_after(preserve_random_states()(seed)) == kept
    assert not set(draws_after(seed)) & set(kept)


@pytest.mark.parametrize("call", [*VERBS.values(), lambda make: Classifier(make, epochs=5, random_state=0).fit(X, Y)])
def test_no_global_random_state_changes(call):
    torch = pytest.importorskip("torch")

    def run():
        torch.manual_seed(3)
        before = torch.random.get_rng_state()
        call(make_model)
        assert torch.equal(torch.random.get_rng_state(), before)

    assert draws_after(run) == draws_after(lambda: None)


@pytest.mark.parametrize("verb", VERBS)
def test_verbose_means_the_same_in_all(verb, capsys):
    lines = []
    for verbose in (0, 1, 2):
        VERBS[verb](make_model, verbose=verbose)
        shown = capsys.readouterr().out
        lines.append(("Epoch 1/5" in shown, bool(shown)))
    assert lines == [(False, False), (False, True), (True, True)]


LABELS = np.arange(30) % 3
P, FEW = 0.85 * np.eye(3)[LABELS] + 0.05, {"epochs": 1, "verbose": 0}


def model(last=None):
    made = keras.Sequential([keras.Input((3,)), last or keras.layers.Dense(3, "softmax")])
    return compiled(made, "sgd", "sparse_categorical_crossentropy")


def scale(*data):
    models.scale_temperature(model(keras_het.HeteroscedasticDense(3)), *data)


def classifier(y, x=P, **arguments):
    return Classifier(epochs=1).fit(x, y, **arguments)


CALLS = {
    "calibration": explain.calibration,
    "find_issues": find_issues,
    "regression_scores": explain.regression_scores,
    "look_alike_transitions": lambda p, y: look_alike_transitions(p, y, 0.1),
    "temperature": scale,
    "TrainingDynamics": callbacks.TrainingDynamics,
    "choose": lambda p, y: choose(model, p, y, methods=[], folds=2, **FEW),
    "clean": lambda p, y: clean(model, p, y, probabilities=P, **FEW),
    "probabilities": lambda p, y: clean(model, P, y, probabilities=p, **FEW),
    "weights": lambda p, y: clean(model, p, LABELS, probabilities=P, sample_weight=y, **FEW),
    "Classifier": lambda p, y: classifier(y, p),
    "weights of a Classifier": lambda p, y: classifier(LABELS, p, sample_weight=y),
}


@pytest.mark.parametrize("call", CALLS)
def test_rows_in_another_order_are_refused(call):
    p, y = pandas.DataFrame(P), pandas.Series(LABELS)[::-1]
    with pytest.raises(ValueError, match=r"`[\w\[\]]+` must have the index of `[\w\[\]]+`.*\. Received: \d+ at"):
        CALLS[call](p, y)


test_what_cannot_be_chosen_is_refused = refusals(
    [(functools.partial(choose, **GIVEN | arguments), text) for arguments, text in REFUSED],
    [(lambda: classifier(np.where(np.arange(30) == 1, -1, LABELS)), "keep only the examples with y != -1")],
    [(lambda: scale(Batches(P, LABELS, LABELS)), "`x` must be (x, y), without weights. Received: a data set with")],
)
