"""The whole way in one call: planted wrong labels rank first, and held-out labels decide what is trained on."""

import functools
import re

import keras
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from keras_het.explain import predict_probabilities
from keras_het.labels import clean
from tests.checks import refusals
from tests.common import Batches, assert_same_arrays, compiled, texts_of_warnings

pytestmark = pytest.mark.once

NAMES, RNG = np.array(["cat", "dog", "owl"]), np.random.default_rng(0)
TRUE = RNG.integers(3, size=240)
X = (np.eye(3)[TRUE] * 6 + RNG.normal(size=(240, 3))).astype("float32")
LABELS = np.where(np.arange(240) % 5 == 0, (TRUE + 1 + np.arange(240) % 2) % 3, TRUE)  # a fifth is wrong
LIMIT = "Errors that the model has learned, for example of a rule or of one annotator, look like correct labels."


def make_model(units=3):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units, "softmax")])
    return compiled(model, keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")


def out_of_sample():
    return 0.85 * np.eye(3)[TRUE] + 0.05


def trained_model():
    model = make_model()
    model.fit(X, TRUE, epochs=20, verbose=0)
    return model


CLASSIFIERS = {
    "features": lambda: (None, {}),
    "scikit-learn": lambda: (make_pipeline(StandardScaler(), LogisticRegression()), {}),
    "a function": lambda: (make_model, {"epochs": 20, "batch_size": 40}),
    "a trained model": lambda: (trained_model(), {}),
}


SMOKE = [pytest.param(name, marks=pytest.mark.smoke) for name in CLASSIFIERS if name != "a function"]


@pytest.mark.parametrize("kind", [*SMOKE, "a function"])  # TensorFlow compiles it for every fold
def test_planted_wrong_labels_are_found_by_any_classifier(kind):
    classifier, options = CLASSIFIERS[kind]()
    result = clean(classifier, X, NAMES[LABELS], folds=3, verbose=0, **options)
    issues = result.issues
    wrong = issues.index[issues.disagrees]
    assert np.mean((LABELS != TRUE)[wrong]) > 0.9
    assert np.mean(np.isin(np.flatnonzero(LABELS != TRUE), wrong)) > 0.9
    is_network = kind != "scikit-learn"
    p = predict_probabilities(result.model, X) if is_network else result.model.predict_proba(X)
    assert np.mean(p.argmax(axis=1) == TRUE) > 0.95
    lines = str(result).splitlines()
    assert re.match(r".*\. Held-out labels predicted: (79|80)\.\d%\.$", lines[0])
    assert re.match(r"The model disagrees with \d+ of 240 labels; \d+ are issues\. Most frequent: ", lines[1])
    assert lines[2].startswith("The final model is trained ")
    assert lines[3].startswith(LIMIT)


class Memory(keras.Model):
    """Knows the examples it was fitted to; predicts a wrong class for those, else the class that the input says."""

    seen: list = []  # noqa: RUF012 of all models

    def __init__(self):
        super().__init__()
        self.compile(loss="sparse_categorical_crossentropy")

    def fit(self, x, y, sample_weight=None, **arguments):
        self.arguments, self.sample_weight = arguments, sample_weight
        np.testing.assert_array_equal(x[:, 0], y)
        self.known = {float(number) for number in x[:, 1]}
        Memory.seen.append(self)

    def predict_on_batch(self, x):
        x = np.asarray(x)
        return np.stack([np.eye(3)[(int(row[0]) + (row[1] in self.known)) % 3] for row in x])


@pytest.mark.filterwarnings("ignore:The model predicts .* logistic regression:UserWarning")
def test_no_example_is_predicted_by_a_network_that_saw_it_and_weights_go_with_their_examples():
    Memory.seen.clear()
    y = RNG.permutation(np.arange(30) % 3)
    x = np.stack([y, np.arange(30)], axis=1).astype("float32")
    result = clean(Memory, x, y, folds=4, epochs=7, sample_weight=x[:, 1] * 2.0, verbose=0)
    np.testing.assert_array_equal(result.probabilities.argmax(1), y)  # a model that saw it would be wrong
    assert len(Memory.seen) == 5  # without an issue, nothing has to be tested
    for model in Memory.seen:
        assert model.arguments["epochs"] == 7
        assert set(model.sample_weight) == {2.0 * number for number in model.known}


def test_the_folds_that_choose_with_given_probabilities_do_not_follow_the_order_of_the_labels():
    """Every fifth label is of class 0: without random folds, no training would see one."""
    one_hot = np.eye(5)[np.arange(240) % 5]
    x = one_hot * 6 + RNG.normal(size=(240, 5))
    result = clean(None, x, one_hot.argmax(axis=1), probabilities=0.85 * one_hot + 0.03, verbose=0)
    assert min(result.learner.choice.scores.values()) > 0.9


def test_no_example_is_predicted_by_an_estimator_that_saw_it():
    x, y = RNG.normal(size=(90, 2)), np.arange(90) % 3
    with pytest.raises(ValueError, match="clearly better than the majority class"):
        clean(KNeighborsClassifier(1), x, y, verbose=0)  # on its own examples it is always right
    votes = 0.7 * np.eye(3, dtype="float32")[LABELS] + 0.1
    result = clean(LogisticRegression(), X, votes, verbose=0)
    assert np.mean(result.model.predict(X) == TRUE) > 0.95
    assert np.mean(clean(KNeighborsClassifier(9), X, votes, verbose=0).model.predict(X) == TRUE) > 0.95


def seen_by(action, **arguments):
    seen = {}

    def make():
        model = make_model()
        model.fit = lambda x, y, sample_weight=None, **others: seen.update(x=x, y=y, weight=sample_weight)
        return model

    arguments = {"probabilities": out_of_sample(), "epochs": 1, "verbose": 0, "action": action, **arguments}
    return seen, clean(make, X, LABELS, **arguments)


def test_dropped_examples_are_not_trained_on_and_corrected_labels_are():
    seen, result = seen_by("drop", sample_weight=np.arange(240.0))
    wrong = result.issues.index[result.issues.is_issue]
    kept = np.setdiff1d(np.arange(240), wrong)
    np.testing.assert_array_equal(seen["x"], X[kept])
    np.testing.assert_array_equal(seen["y"], LABELS[kept])
    np.testing.assert_array_equal(seen["weight"], kept)
    assert len(wrong) > 30
    assert result.reason == f"The final model is trained without the {len(wrong)} issues, as you asked."
    seen, result = seen_by("correct")
    np.testing.assert_array_equal(seen["y"][wrong], TRUE[wrong])
    np.testing.assert_array_equal(seen["y"][kept], LABELS[kept])
    assert result.action == "correct"
    for action in ("keep", None):  # nothing tested whether to drop
        seen, result = seen_by(action)
        np.testing.assert_array_equal(seen["y"], LABELS)
        assert result.action is None


def heavy(is_memorized, count=600, size=60):
    rng = np.random.default_rng(0)
    true, x = np.arange(count) % 3, rng.normal(size=(count, size))
    x[:, :3] += 2.5 * np.eye(3)[true]
    labels = np.where(rng.random(count) < 0.4, rng.integers(3, size=count), true)
    return x, labels, true, LogisticRegression(C=100.0 if is_memorized else 1e-4, max_iter=1000)


@pytest.mark.parametrize("is_memorized", [True, False])
def test_held_out_labels_decide_whether_issues_are_dropped(is_memorized):
    x, labels, true, classifier = heavy(is_memorized)
    result = clean(classifier, x, labels, verbose=0)
    gap = re.search(r"\(([-+]\d+\.\d+) \+- (\d+\.\d+) points of the classes' mean accuracy", result.reason)
    assert (float(gap[1]) > float(gap[2])) == is_memorized
    assert result.action == ("drop" if is_memorized else None)
    if is_memorized:
        everything, without = classifier.fit(x, labels).predict(x), result.model.predict(x)
        assert np.mean(without == true) > np.mean(everything == true) + 0.02
        np.testing.assert_array_equal(result.retrain("drop").predict(x), without)


@pytest.mark.parametrize("action", ["drop", "correct"])
def test_no_class_is_lost(action):
    """The model gives all four labels elk to others; so they stay, and the rest is dropped."""
    names = np.where(np.arange(240) < 4, "elk", NAMES[LABELS])
    p = np.insert(out_of_sample(), 2, 0.0, axis=1)  # cat, dog, elk, owl
    with texts_of_warnings():
        result = clean(lambda: make_model(4), X, names, probabilities=p, epochs=1, verbose=0, action=action)
    data = result.clean_data(action)
    assert set(data.labels) == {0, 1, 2, 3}
    assert np.sum(data.labels == 2) == 4
    assert len(result.dropped_rows) > 30


def test_a_large_class_that_the_model_hardly_names_is_warned_of():
    rng = np.random.default_rng(0)
    y = (np.arange(1000) % 8 == 0).astype(int)
    x = rng.normal(size=(1000, 10))
    x[:, 0] += 0.9 * y
    with texts_of_warnings() as texts:
        clean(LogisticRegression(), x, y, verbose=0)
    assert re.search(r"The model predicts class 1 for \d+ examples, but 125 have this label", str(texts))
    with texts_of_warnings() as texts:
        result = clean(None, x, y, verbose=0)
    assert "predicts class" not in str(texts)
    assert result.classifier.startswith("Linear discriminant (shrinkage ")
    rare = (np.arange(1000) % 33 == 0).astype(int)
    with texts_of_warnings() as texts:
        clean(None, rng.normal(size=(1000, 10)) + 0.9 * rare[:, None] * (np.arange(10) == 0), rare, verbose=0)
    assert re.search(r"The model predicts class 1 for \d{3} examples, but 31 have this label", str(texts))


def test_without_issues_every_example_stays():
    result = seen_by(None, probabilities=0.85 * np.eye(3)[LABELS] + 0.05)[1]
    for action in ("drop", "correct"):
        np.testing.assert_array_equal(result.clean_data(action).y, LABELS)
    assert result.reason == "The final model is trained on all labels, because none is an issue."


def test_columns_in_another_order_than_the_classes_are_named():
    names = np.array(["9", "10", "2"])
    options = {"probabilities": 0.85 * np.eye(3)[TRUE] + 0.05, "verbose": 0}
    with pytest.raises(ValueError, match=r"columns are in the order '10', '2', '9' \(or pass `class_names`\)"):
        clean(None, X, names[LABELS], **options)
    result = clean(None, X, names[LABELS], class_names=names, **options)
    assert sorted(result.issues.index[result.issues.disagrees]) == np.flatnonzero(LABELS != TRUE).tolist()


def test_a_data_set_gives_the_same_as_its_arrays_and_features_of_one_have_a_report(tmp_path):
    weights, model = np.arange(240.0), trained_model()
    result = clean(model, Batches(X, LABELS, weights), verbose=0)
    expected = clean(model, X, LABELS, sample_weight=weights, verbose=0)
    np.testing.assert_array_equal(result.issues.index, expected.issues.index)
    assert_same_arrays(result.model.weights, expected.model.weights)
    np.testing.assert_allclose(np.exp(result.model.predict(X, verbose=0)).sum(axis=1), 1.0, atol=1e-5)
    assert result.report(tmp_path).exists()


def probit(seed, count=600, size=20):
    """Features, and labels by the sign of a noisy feature: all are as good as they can be, and none can be dropped."""
    rng = np.random.default_rng([seed, 100])
    x = rng.normal(size=(count, size))
    return x, (x[:, 0] + rng.normal(size=count) > 0).astype(int)


@pytest.mark.parametrize("classifier", [None, LogisticRegression()])
def test_no_gain_is_claimed_where_dropping_gains_nothing(classifier):
    """If models that have seen a fold chose the issues, they would be dropped in nearly all of the draws."""
    results = [clean(classifier, *probit(seed), verbose=0) for seed in range(8)]
    assert sum(result.action == "drop" for result in results) <= 4  # a sixth by chance: five or more once in 600 runs


def test_weights_of_zero_leave_rows_and_whole_classes_out():
    weights = np.where(TRUE == 2, 0.0, 1.0)
    with texts_of_warnings():
        result = clean(None, X, LABELS, sample_weight=weights, verbose=0)
    assert "+nan" not in result.reason
    many, labels = np.tile(X, (80, 1)), np.tile(LABELS, 80)
    result = clean(None, many, labels, sample_weight=np.arange(len(many)) >= 10_000, action="keep", verbose=0)
    assert np.mean(result.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.95


def test_the_random_state_of_an_estimator_is_the_seed():
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(5))
    first, second, other = (clean(forest, X, LABELS, seed=seed, action="keep", verbose=0) for seed in (0, 0, 7))
    np.testing.assert_array_equal(first.probabilities, second.probabilities)
    assert not np.array_equal(first.probabilities, other.probabilities)


def test_features_in_any_unit():
    expected = clean(None, X, LABELS, verbose=0)
    for unit in (1e-20, 1e20):
        result = clean(None, unit * X.astype("float64"), LABELS, verbose=0)
        np.testing.assert_allclose(result.probabilities, expected.probabilities, atol=1e-4)


class Broken(LogisticRegression):
    def predict_proba(self, x):
        return super().predict_proba(x) * np.where(np.arange(len(x)) == 0, np.nan, 1.0)[:, None]


FEATURES = {"classifier": None, "epochs": None}
REFUSED = [
    ({"classifier": [make_model]}, "`classifier` must be a scikit-learn classifier with"),
    ({"classifier": LogisticRegression}, "or None. Received: the class LogisticRegression"),
    ({"epochs": None}, "`epochs` must be an integer at least 1"),
    ({"classifier": None}, "`epochs` must be None, unless `classifier` is a function"),
    (FEATURES | {"x": np.zeros((240, 2, 2))}, "(N, D) with D >= 1; for other examples pass a function"),
    ({"classifier": KNeighborsClassifier(), "epochs": None, "sample_weight": np.ones(240)},
     "`sample_weight` must be None, because `fit` of KNeighborsClassifier has no `sample_weight`"),
    (FEATURES | {"x": np.where(np.eye(240, 3, -3), np.inf, X)}, "finite. Received: nan or infinity in example 3"),
    (FEATURES | {"x": 1e100 * X.astype(float)}, "`x` must have standard deviations from 1e-30 to 1e30"),
    ({"classifier": Broken(), "epochs": None, "probabilities": None}, "predict_proba of Broken must have no nan"),
    ({"action": "delete"}, "`action` must be one of 'drop', 'correct', 'keep'. Received: action='delete'"),
    ({"probabilities": np.full((240, 4), 0.25)}, "`probabilities` must have shape (N, 3), a column for each class. R"),
    ({"probabilities": np.full((24, 3), 1 / 3)}, "have a row for each of the 240 examples. Received: shape (24, 3)"),
    ({"probabilities": np.random.default_rng(1).dirichlet(np.ones(3), size=240)},
     "`probabilities` must predict held-out labels clearly better than the majority class"),
]  # fmt: skip
GIVEN = {"classifier": make_model, "x": X, "y": LABELS, "probabilities": out_of_sample(), "epochs": 1, "verbose": 0}
test_what_cannot_be_cleaned_is_refused = refusals(
    [(functools.partial(clean, **GIVEN | arguments), text) for arguments, text in REFUSED]
)
