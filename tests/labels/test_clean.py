"""The whole way in one call: planted wrong labels are found, and the new model does without them."""

import csv
import dataclasses
import re
import sys

import keras
import numpy as np
import pandas
import pytest

from keras_het.explain import predict_probabilities
from keras_het.labels import clean, discriminant, methods
from keras_het.labels.data import Data
from keras_het.labels.decoding import decode
from keras_het.labels.issues import find_issues
from keras_het.labels.reports import page
from keras_het.labels.reports.figures import Picture
from keras_het.labels.result import Result
from tests.common import Batches, assert_same_arrays, compiled, texts_of_warnings

pytestmark = pytest.mark.once

NAMES, RNG = np.array(["cat", "dog", "owl"]), np.random.default_rng(0)
TRUE = RNG.integers(3, size=240)
X = (np.eye(3)[TRUE] * 6 + RNG.normal(size=(240, 3))).astype("float32")
LABELS = np.where(np.arange(240) % 5 == 0, (TRUE + 1 + np.arange(240) % 2) % 3, TRUE)  # a fifth is wrong


def make_model(units=3):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units, "softmax")])
    return compiled(model, keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")


def out_of_sample():
    """Probabilities of a model that knows the truth, so that no model has to be trained for them."""
    return 0.85 * np.eye(3)[TRUE] + 0.05


def cleaned(y=LABELS, x=X, **arguments):
    given = {"probabilities": out_of_sample(), "epochs": 1, "verbose": 0, "folds": 3, **arguments}
    return clean(make_model, x, y, **given)


@pytest.mark.smoke
def test_planted_wrong_labels_are_found_and_a_model_is_trained_without_them():
    result = cleaned(NAMES[LABELS], probabilities=None, epochs=20, batch_size=40)
    wrong = result.issues.index[result.issues.is_issue]
    assert np.mean((LABELS != TRUE)[wrong]) > 0.8
    assert np.mean(np.isin(np.flatnonzero(LABELS != TRUE), wrong)) > 0.8
    assert result.classes.tolist() == NAMES.tolist()
    assert np.mean(predict_probabilities(result.model, X).argmax(axis=1) == TRUE) > 0.9
    assert result.probabilities.shape == (240, 3)
    assert re.match(
        r"The model disagrees with \d+ of 240 labels\. The final model is trained without .*\.\nmodel", str(result)
    )
    assert "label noise: " in str(result)


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


def test_no_example_is_predicted_by_a_model_that_saw_it_and_weights_go_with_their_examples():
    Memory.seen.clear()
    y = RNG.permutation(np.arange(30) % 3)
    x = np.stack([y, np.arange(30)], axis=1).astype("float32")
    result = clean(Memory, x, y, folds=4, epochs=7, sample_weight=x[:, 1] * 2.0, verbose=0)
    np.testing.assert_array_equal(result.probabilities.argmax(1), y)  # a model that saw it would be wrong
    assert len(Memory.seen) == 5
    for model in Memory.seen:
        assert model.arguments["epochs"] == 7
        assert set(model.sample_weight) == {2.0 * number for number in model.known}


class Subclassed(keras.Model):
    """Its variables are made in `fit`."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, keras.layers.Dense(3, "softmax")
        self.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")

    def call(self, x):
        return self.head(self.layer(x))


def test_a_subclassed_model_is_trained_as_it_is():
    result = clean(lambda: Subclassed(keras.layers.Dense(4)), X, LABELS, epochs=20, folds=2, verbose=0)
    assert isinstance(result.model, Subclassed)
    assert np.mean(result.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.9


def seen_by(action, **arguments):
    seen = {}

    class Spy(keras.Sequential):
        def fit(self, x, y, sample_weight=None, **others):
            seen.update(x=x, y=y, weight=sample_weight)

    def make():
        model = Spy([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
        return compiled(model, "sgd", "sparse_categorical_crossentropy")

    arguments = {"probabilities": out_of_sample(), "epochs": 1, "verbose": 0, "action": action, **arguments}
    return seen, clean(make, X, LABELS, **arguments)


def test_dropped_examples_are_not_trained_on_and_corrected_labels_are():
    seen, result = seen_by("drop", sample_weight=np.arange(240.0))
    kept = np.setdiff1d(np.arange(240), result.issues.index[result.issues.is_issue])
    np.testing.assert_array_equal(seen["x"], X[kept])
    np.testing.assert_array_equal(seen["y"], LABELS[kept])
    np.testing.assert_array_equal(seen["weight"], kept)
    assert result.issues.is_issue.sum() > 30
    seen, result = seen_by("correct")
    wrong = result.issues.index[result.issues.is_issue]
    assert len(seen["y"]) == 240
    np.testing.assert_array_equal(seen["y"][wrong], TRUE[wrong])
    others = np.setdiff1d(np.arange(240), wrong)
    np.testing.assert_array_equal(seen["y"][others], LABELS[others])
    assert "The final model is trained with the suggested classes of" in str(result)


@pytest.mark.parametrize("kind", ["class-dependent", "instance-dependent"])
def test_only_confident_issues_are_left_out_whatever_the_kind_of_noise(kind, monkeypatch):
    p = 0.1 * np.eye(3)[LABELS] + np.where(np.arange(240)[:, None] % 4 > 0, 0.9, 0.55) * np.eye(3)[TRUE]
    p += (1.0 - p.sum(axis=1, keepdims=True)) / 3.0
    own = sys.modules[clean.__module__]
    real = own.diagnose
    monkeypatch.setattr(own, "diagnose", lambda *args, **more: dataclasses.replace(real(*args, **more), kind=kind))
    seen, result = seen_by("drop", probabilities=p)
    few = find_issues(result.probabilities, LABELS)
    everything = set(result.issues.index[result.issues.is_issue].tolist())
    expected = set(few.index[few.is_issue].tolist())
    assert 0 < few.is_issue.sum() < len(everything)
    assert set(result.confident_issues.tolist()) == expected
    assert len(seen["y"]) == 240 - len(expected)
    action = f"The final model is trained without the {len(expected)} confident issues."
    assert f"with {len(everything)} of 240 labels. {action}" in str(result)


@pytest.mark.parametrize(("errors", "confident", "text"), [
    (1, 1, "disagrees with 1 of 240 labels. The final model is trained without this label."),
    (2, 2, "disagrees with 2 of 240 labels. The final model is trained without these labels."),
    (2, 1, "disagrees with 2 of 240 labels. The final model is trained without the confident issue."),
])  # fmt: skip
def test_a_single_label_is_named_in_the_singular(errors, confident, text, monkeypatch):
    monkeypatch.setattr(Result, "confident_issues", np.arange(confident))
    p = np.where(np.arange(240)[:, None] < errors, np.roll(np.eye(3)[LABELS], 1, axis=1), np.eye(3)[LABELS])
    result = clean(None, X, LABELS, probabilities=p, action="drop", verbose=0)
    assert text in result.reason


def test_all_disagreements_are_issues_where_most_of_them_are_estimated_to_be_errors():
    """Of 60 labels 0 the model gives 6 to class 1; it is sure of 1 or 5 of these, and the others are hard."""
    labels = np.arange(60) // 30
    for sure, count in ((1, 1), (5, 6)):
        p = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
        p[:6] = [0.45, 0.55]
        p[:sure] = [0.05, 0.95]
        result = Result(None, [], None, "", None, p, Data(None, labels, np.arange(2)), None)
        assert result.confident_issues.tolist() == list(range(sure))
        assert sorted(result.issues.index[result.issues.is_issue]) == list(range(count))


def test_without_issues_every_example_stays():
    result = cleaned(probabilities=0.85 * np.eye(3)[LABELS] + 0.05)
    for action in ("drop", "correct"):
        np.testing.assert_array_equal(result.clean_data(action).y, LABELS)
    assert "0 of 240 labels. The final model is trained on all labels, because none is a confident" in result.reason


def test_the_frame_of_issues_has_the_names_and_the_index_of_the_data():
    x = pandas.DataFrame(X, columns=["a", "b", "c"], index=[f"row {i}" for i in range(240)])
    result = cleaned(pandas.Categorical.from_codes(LABELS, NAMES), x)
    frame = result.issues.to_frame().loc[x.index]
    assert frame.columns.tolist() == ["label", "suggested", "score", "is_issue", "kind"]
    assert frame.label.tolist() == NAMES[LABELS].tolist()
    assert frame.suggested[frame.is_issue].tolist() == NAMES[TRUE][frame.is_issue].tolist()
    np.testing.assert_allclose(frame.score, out_of_sample()[np.arange(240), LABELS], rtol=1e-6)
    assert set(result.confident_issues.tolist()) <= set(range(240))  # row numbers
    assert sorted(cleaned(pandas.Series(LABELS, index=x.index)).issues.to_frame().index) == sorted(x.index)


def test_the_report_names_the_labels_that_were_left_out(tmp_path):
    result = cleaned(NAMES[LABELS], report_path=tmp_path)
    assert result.page == tmp_path / "report.html"
    assert "owl" in result.page.read_text()
    assert str(result).endswith(f"report: {result.page}")
    rows = list(csv.DictReader((tmp_path / "labels.csv").read_text("utf-8-sig").splitlines()))
    wrong = {int(row["index"]) for row in rows if row["is_issue"] == "1"}
    assert wrong == set(result.issues.index[result.issues.is_issue].tolist())
    assert len(wrong) == 48


def test_the_report_shows_the_columns_of_a_frame_and_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "reliability_diagram", lambda calibration: Picture("", ""))
    x = pandas.DataFrame(X, columns=["height", "<b>", 3], index=[f"row {i}" for i in range(240)])
    result = cleaned(pandas.Series(NAMES[LABELS], index=x.index), x, report_path=tmp_path)
    text = result.page.read_text()
    for title in ("index", "height", "&lt;b&gt;", "3"):
        assert f"<bdi>{title}</bdi></th>" in text
    assert "<bdi>row 235</bdi>" in text
    texts = pandas.Series("text of " + x.index, index=x.index)
    assert "<bdi>text of row 235</bdi>" in result.report(tmp_path, texts=texts).read_text()
    with pytest.raises(ValueError, match=r"`texts` must have the index of `y`: .*Received: 'row 239' at \[0\]"):
        result.report(tmp_path, texts=texts[::-1])


def test_features_of_a_data_set_have_a_report(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "reliability_diagram", lambda calibration: Picture("", ""))
    trained = make_model()
    trained.fit(X, TRUE, epochs=2, verbose=0)
    result = clean(trained, Batches(X, LABELS), verbose=0)
    assert result.model.predict(X, verbose=0).shape == (240, 3)
    assert result.report(tmp_path).exists()


def test_a_model_that_learned_nothing_stops_the_call():
    guess = np.random.default_rng(1).dirichlet(np.ones(3), size=240)
    with pytest.raises(ValueError, match="`probabilities` must predict held-out labels clearly better than the major"):
        cleaned(probabilities=guess)
    with pytest.raises(ValueError, match=r"The model must predict .* majority class: scale the inputs"):
        clean(None, np.random.default_rng(1).normal(size=(240, 3)), LABELS, verbose=0)


def test_columns_in_another_order_than_the_classes_are_named():
    names = np.array(["9", "10", "2"])
    p = 0.85 * np.eye(3)[TRUE] + 0.05
    options = {"probabilities": p, "verbose": 0}
    with pytest.raises(ValueError, match=r"columns are in the order '10', '2', '9' \(or pass `class_names`\)"):
        clean(None, X, names[LABELS], **options)
    result = clean(None, X, names[LABELS], class_names=names, **options)
    wrong = result.issues.suggested != result.issues.label
    assert sorted(result.issues.index[wrong]) == np.flatnonzero(LABELS != TRUE).tolist()


def test_on_features_nothing_is_trained():
    result = clean(None, X, LABELS, verbose=0)
    wrong = result.issues.index[result.issues.is_issue]
    assert np.mean(LABELS[wrong] != TRUE[wrong]) > 0.9
    assert np.mean(result.model.predict(X, verbose=0).argmax(1) == TRUE) > 0.95
    again = clean(None, X, LABELS, sample_weight=np.ones(len(X)), verbose=0)
    np.testing.assert_array_equal(again.probabilities, result.probabilities)
    assert result.trials[0].name == "linear discriminant analysis"
    assert clean(None, X, LABELS, epochs=2, verbose=0).trials[0].name == "early stopping"


@pytest.mark.parametrize("is_class_dependent", [True, False])
def test_a_discriminant_is_trained_on_all_labels_unless_the_noise_is_class_dependent(is_class_dependent):
    """42% of the labels are the next class, or any; sixty features say nothing, so the most probable errs."""
    rng = np.random.default_rng(0)
    true = rng.integers(6, size=2000)
    x = np.concatenate([4 * np.eye(6)[true], np.zeros((2000, 60))], axis=1) + rng.normal(size=(2000, 66))
    others = (true + 1) % 6 if is_class_dependent else rng.integers(6, size=2000)
    labels = np.where(rng.random(2000) < 0.42, others, true)[:1000]
    result = clean(None, x[:1000], labels, verbose=0)
    everything = result.trainer.final(result.chosen.method, result.data, seed=0, epochs=1)
    right, expected = (
        np.mean(model.predict(x[1000:], verbose=0).argmax(axis=1) == true[1000:])
        for model in (result.model, everything)
    )
    if is_class_dependent:
        assert right > expected + 0.2
        assert "Held-out labels show that one class is often labelled as another." in result.reason
        return
    assert right == expected > 0.92  # 0.943 by scikit-learn, on features of variance 1
    assert (
        "uses all labels, because held-out labels do not prove that one class is often labelled as another."
        in result.reason
    )
    assert " confident issues." in clean(None, x[:1000], labels, action="drop", verbose=0).reason


def test_class_dependent_noise_that_is_hardly_flagged_is_called_so(monkeypatch):
    monkeypatch.setattr(Result, "_decoded", decode(LABELS, out_of_sample())._replace(is_proven=True))
    monkeypatch.setattr(Result, "confident_issues", np.arange(3))
    result = clean(None, X, LABELS, probabilities=out_of_sample(), verbose=0)
    assert result.reason.endswith(
        "because too few disagreements are confident issues to prove that one class is often labelled as another. "
        'If you expect this, compare action="drop".'
    )


def test_what_is_measured_is_what_is_returned_and_a_data_set_gives_the_same_as_its_arrays():
    """One Normalization scales the features of both."""
    result = clean(None, 1e3 * X + 1e2, LABELS, probabilities=out_of_sample(), verbose=0)
    x = 1e3 * X + 1e2
    fitted = result.trainer(result.chosen.method, result.data, result.data, seed=0)
    np.testing.assert_allclose(fitted.probabilities, np.exp(result.model.predict(x, verbose=0)), atol=1e-5)
    weights = np.arange(240.0)
    result, expected = cleaned(None, Batches(X, LABELS, weights)), cleaned(sample_weight=weights)
    np.testing.assert_array_equal(result.issues.index, expected.issues.index)
    assert_same_arrays(result.model.weights, expected.model.weights)


@pytest.mark.parametrize(("action", "change"), [("drop", "dropped"), ("correct", "corrected to other classes")])
def test_a_class_that_is_lost_is_named(action, change):
    names = np.where(np.arange(240) < 4, "elk", NAMES[LABELS])
    p = np.insert(out_of_sample(), 2, 0.0, axis=1)  # cat, dog, elk, owl
    with texts_of_warnings() as texts:
        clean(lambda: make_model(4), X, names, probabilities=p, epochs=1, verbose=0, action=action)
    assert any(text.startswith(f"All examples labelled elk were {change}, ") for text in texts)


def test_a_class_that_is_too_rare_for_the_folds_is_named():
    names = np.where(np.arange(240) < 4, "elk", NAMES[LABELS])
    assert "Class 'elk' has fewer examples (4) than folds (5)" in warned(X, names)[1]


REFUSED = {
    "a -1": ({"y": np.where(np.arange(240) == 1, -1, LABELS)},
        "at [1], a missing label: keep only the examples with y != -1"),
    "a list": ({"make_model": [make_model]}, "`make_model` must be a function that makes a new compiled model"),
    "no epochs": ({"epochs": None}, "`epochs` must be an integer at least 1"),
    "an action": ({"action": "delete"}, "`action` must be one of 'drop', 'correct'. Received: action='delete'"),
    "other classes": ({"probabilities": np.full((240, 4), 0.25)},
        "`probabilities` must have shape (N, 3), a column for each class. Received: "),
    "other rows": ({"probabilities": np.full((24, 3), 1 / 3)},
        "`probabilities` must have a row for each of the 240 examples. Received: shape (24, 3)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_cleaned_is_refused(case):
    arguments, text = REFUSED[case]
    given = {"make_model": make_model, "x": X, "y": LABELS, "probabilities": out_of_sample(), "epochs": 1, "folds": 3}
    with pytest.raises(ValueError, match=re.escape(text)):
        clean(**given | {"verbose": 0} | arguments)


def clusters(count=150, size=4):
    """Features of three classes, and labels of which every seventh is wrong."""
    labels = np.arange(count) % 3
    x = np.random.default_rng(0).normal(size=(count, size)) + 3.0 * np.eye(3, size)[labels]
    return x, np.where(np.arange(count) % 7 == 0, (labels + 1) % 3, labels)


def warned(*arguments):
    """The result of `clean`, and the texts of its warnings; PyTorch has others of its own."""
    with texts_of_warnings() as texts:
        result = clean(None, *arguments, verbose=0)
    return result, " ".join(texts)


def test_a_discriminant_behind_the_class_means_is_warned_of(monkeypatch):
    monkeypatch.setattr(discriminant, "SHRINKAGES", (1e-3,))  # too little for as many features as examples
    assert "the nearest class mean of its features" in warned(*clusters(90, 70))[1]


def test_folds_and_the_final_discriminant_have_priors_of_one_kind(monkeypatch):
    """A fold of these that decides for itself takes equal priors or frequencies, as its examples happen to be."""
    found = []
    monkeypatch.setattr(
        methods, "discriminant", lambda *given: found.append(discriminant.discriminant(*given)) or found[-1]
    )
    rng = np.random.default_rng([0, 60])
    true, x = (rng.random(1000) < 0.2).astype(int), rng.normal(size=(1000, 10))
    x[:, 0] += 1.5 * true
    result, _ = warned(x, true)
    result.retrain("drop")
    assert [each.has_frequencies for each in found] == 8 * [True]
