"""The whole way in one call: planted wrong labels are found, and the new model does without them."""

import csv
import dataclasses
import re
import sys
import warnings

import keras
import numpy as np
import pytest

import keras_het
from keras_het.analysis import find_label_issues
from keras_het.explain import predict_probabilities
from keras_het.labels.report import page
from keras_het.training.result import cleaned

pytestmark = pytest.mark.once

NAMES = np.array(["cat", "dog", "owl"])
RNG = np.random.default_rng(0)
TRUE = RNG.integers(3, size=240)
X = (np.eye(3)[TRUE] * 6 + RNG.normal(size=(240, 3))).astype("float32")
LABELS = np.where(np.arange(240) % 5 == 0, (TRUE + 1 + np.arange(240) % 2) % 3, TRUE)  # a fifth is wrong


def make_model(units=3):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units, "softmax")])
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
    return model


def out_of_sample():
    """Probabilities of a model that knows the truth, so that no model has to be trained for them."""
    return 0.85 * np.eye(3)[TRUE] + 0.05


def clean(y=LABELS, x=X, **arguments):
    given = {"probabilities": out_of_sample(), "epochs": 1, "verbose": 0, **arguments}
    return keras_het.clean_labels(make_model, x, y, folds=3, **given)


@pytest.mark.smoke
def test_planted_wrong_labels_are_found_and_a_model_is_trained_without_them():
    found = clean(NAMES[LABELS], probabilities=None, epochs=20, batch_size=40)
    wrong = found.issues.index[found.issues.is_issue]
    assert np.mean((LABELS != TRUE)[wrong]) > 0.8
    assert np.mean(np.isin(np.flatnonzero(LABELS != TRUE), wrong)) > 0.8
    assert found.classes.tolist() == NAMES.tolist()
    assert np.mean(predict_probabilities(found.model, X).argmax(axis=1) == TRUE) > 0.9
    assert found.probabilities.shape == (240, 3)
    assert re.search(r"\d+ of 240 labels are issues, .*were left out\n", str(found))  # all, or the surest
    assert "label noise: " in str(found)
    assert "next step: " in str(found)


def test_features_need_no_function():
    """The third argument of `compile` is no metric: with it there, every call without a function failed."""
    found = keras_het.clean_labels(None, X, LABELS, epochs=1, probabilities=out_of_sample(), verbose=0)
    assert found.model.output_shape == (None, 3)
    assert "were left out" in found.reason


def seen_by(action, **arguments):
    """What `fit` gets."""
    seen = {}

    class Spy(keras.Sequential):
        def fit(self, x, y, sample_weight=None, **others):
            seen.update(x=x, y=y, weight=sample_weight)

    def make():
        model = Spy([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    arguments = {"probabilities": out_of_sample(), "epochs": 1, "verbose": 0, "action": action, **arguments}
    return seen, keras_het.clean_labels(make, X, LABELS, **arguments)


def test_dropped_examples_are_not_trained_on_and_weights_go_with_the_others():
    seen, found = seen_by("drop", sample_weight=np.arange(240.0))
    kept = np.setdiff1d(np.arange(240), found.issues.index[found.issues.is_issue])
    np.testing.assert_array_equal(seen["x"], X[kept])
    np.testing.assert_array_equal(seen["y"], LABELS[kept])
    np.testing.assert_array_equal(seen["weight"], kept)
    assert found.issues.is_issue.sum() > 30


def test_corrected_labels_are_trained_on():
    seen, found = seen_by("correct")
    wrong = found.issues.index[found.issues.is_issue]
    assert len(seen["y"]) == 240
    np.testing.assert_array_equal(seen["y"][wrong], TRUE[wrong])
    others = np.setdiff1d(np.arange(240), wrong)
    np.testing.assert_array_equal(seen["y"][others], LABELS[others])
    assert "were replaced by the suggested class" in str(found)


@pytest.mark.parametrize("kind", ["by class", "by example"])
def test_all_issues_are_left_out_where_they_go_by_class_and_else_the_surest(kind, monkeypatch):
    p = 0.1 * np.eye(3)[LABELS] + np.where(np.arange(240)[:, None] % 4 > 0, 0.9, 0.55) * np.eye(3)[TRUE]
    p += (1.0 - p.sum(axis=1, keepdims=True)) / 3.0
    own = sys.modules[keras_het.clean_labels.__module__]
    real = own.diagnose
    monkeypatch.setattr(own, "diagnose", lambda *args, **more: dataclasses.replace(real(*args, **more), kind=kind))
    seen, found = seen_by("drop", probabilities=p)
    few, all_of_them = (
        find_label_issues(found.probabilities, LABELS),
        set(found.issues.index[found.issues.is_issue].tolist()),
    )
    expected = all_of_them if kind == "by class" else set(few.index[few.is_issue].tolist())
    assert 0 < few.is_issue.sum() < len(all_of_them)
    assert set(found.surest.tolist()) == expected
    assert len(seen["y"]) == 240 - len(expected)
    assert ("of which the surest" in str(found)) == (kind == "by example")


def test_without_issues_every_example_stays():
    probabilities = 0.85 * np.eye(3)[LABELS] + 0.05
    found = clean(probabilities=probabilities)
    for action in ("drop", "correct"):
        labels, kept = cleaned(LABELS, found.issues, found.surest, action)
        np.testing.assert_array_equal(labels, LABELS)
        assert len(kept) == 240


def test_the_frame_of_issues_has_the_names_and_the_index_of_the_data():
    pandas = pytest.importorskip("pandas")  # the session `tests` has it
    x = pandas.DataFrame(X, columns=["a", "b", "c"], index=[f"row {i}" for i in range(240)])
    frame = clean(pandas.Categorical.from_codes(LABELS, NAMES), x).issues.to_frame().loc[x.index]
    assert frame.columns.tolist() == ["given", "suggested", "score", "is_issue", "kind"]
    assert frame.given.tolist() == NAMES[LABELS].tolist()
    assert frame.suggested[frame.is_issue].tolist() == NAMES[TRUE][frame.is_issue].tolist()
    np.testing.assert_allclose(frame.score, out_of_sample()[np.arange(240), LABELS])
    assert sorted(clean(pandas.Series(LABELS, index=x.index)).issues.to_frame().index) == sorted(x.index)


def test_a_report_is_written_with_the_names(tmp_path):
    found = clean(NAMES[LABELS], report_path=tmp_path / "report")
    assert found.page == tmp_path / "report" / "report.html"
    assert "owl" in found.page.read_text()
    assert str(found).endswith(f"report: {found.page}")


def test_the_report_names_the_labels_that_were_left_out(tmp_path):
    found = clean(NAMES[LABELS], report_path=tmp_path)
    rows = list(csv.DictReader((tmp_path / "labels.csv").read_text("utf-8-sig").splitlines()))
    wrong = {int(row["index"]) for row in rows if row["is_issue"] == "1"}
    assert wrong == set(found.issues.index[found.issues.is_issue].tolist())
    assert len(wrong) == 48


def test_the_report_of_embeddings_shows_the_texts_that_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "pictures", lambda found: [])
    text = clean().report(tmp_path, texts=[f"text {index}" for index in range(240)]).read_text()
    assert "<bdi>text 235</bdi>" in text
    assert ",text 234\r\n" in (tmp_path / "labels.csv").read_bytes().decode()


def test_the_report_shows_the_columns_of_a_frame_and_knows_its_index(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")  # the session `tests` has it
    monkeypatch.setattr(page, "pictures", lambda found: [])
    x = pandas.DataFrame(X, columns=["height", "<b>", 3], index=[f"row {i}" for i in range(240)])
    found = clean(pandas.Series(NAMES[LABELS], index=x.index), x, report_path=tmp_path)
    text = found.page.read_text()
    for title in ("index", "height", "&lt;b&gt;", "3"):
        assert f"<bdi>{title}</bdi></th>" in text
    assert "<bdi>row 235</bdi>" in text
    texts = pandas.Series("text of " + x.index, index=x.index)
    assert "<bdi>text of row 235</bdi>" in found.report(tmp_path, texts=texts).read_text()
    with pytest.raises(ValueError, match=r"`texts` must have the index of `y` .*Received: 'row 239' at \[0\]"):
        found.report(tmp_path, texts=texts[::-1])


def test_many_issues_are_warned_of_in_words():
    assert "careful" not in str(clean())
    guess = 0.4 * out_of_sample() + 0.6 * np.random.default_rng(1).dirichlet(np.full(3, 0.2), size=240)
    assert "careful: these are many. A weak model" in str(clean(probabilities=guess))


@pytest.mark.parametrize("epochs", [None, 1])
def test_a_model_that_learned_nothing_stops_the_call(epochs):
    """As a single epoch of a slow optimizer did, which dropped nine of ten labels without a word."""
    guess = np.random.default_rng(1).dirichlet(np.ones(3), size=240) if epochs is None else None

    def slow():
        model = make_model()
        model.optimizer.learning_rate = 0.0
        model.set_weights([0.0 * weight for weight in model.get_weights()])
        return model

    with pytest.raises(ValueError, match="better than the largest class does: train for more epochs"):
        keras_het.clean_labels(slow, X, LABELS, epochs=1, probabilities=guess, verbose=0)


def test_epochs_must_be_said():
    with pytest.raises(ValueError, match="`epochs` must be an integer at least 1"):
        keras_het.clean_labels(make_model, X, LABELS)
    with pytest.raises(ValueError, match="`callbacks` must be given where there is something to train: with `epochs`"):
        keras_het.clean_labels(None, X, LABELS, callbacks=[])


def test_on_features_nothing_is_trained():
    found = keras_het.clean_labels(None, X, LABELS, verbose=0)
    wrong = found.issues.index[found.issues.is_issue]
    assert np.mean(LABELS[wrong] != TRUE[wrong]) > 0.9
    assert np.mean(found.model.predict(X, verbose=0).argmax(1) == TRUE) > 0.95
    again = keras_het.clean_labels(None, X, LABELS, sample_weight=np.ones(len(X)), verbose=0)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)


def test_verified_labels_are_no_issues():
    wrong = np.flatnonzero(LABELS != TRUE)[:4].tolist()
    found = clean(verified_labels=dict.fromkeys(wrong, 0) | {index: int(LABELS[index]) for index in wrong[1:]})
    assert not set(wrong) & set(found.issues.index[found.issues.is_issue].tolist())
    assert found.data.y[wrong].tolist() == [0, *LABELS[wrong[1:]]]


def test_a_folder_goes_on_and_a_result_trains_again_without_a_fold(tmp_path):
    made = []

    def make():
        made.append(1)
        return make_model()

    arguments = {
        "probabilities": None,
        "epochs": 20,
        "batch_size": 40,
        "resume_path": tmp_path,
        "verbose": 0,
        "folds": 3,
    }
    first = keras_het.clean_labels(make, X, LABELS, **arguments)
    count = len(made)
    again = keras_het.clean_labels(make, X, LABELS, **arguments)
    np.testing.assert_array_equal(again.probabilities, first.probabilities)
    assert len(made) - count == 2  # one to compare it with the folder, one to train
    model = again.retrain("correct")
    assert len(made) - count == 3
    assert np.mean(predict_probabilities(model, X).argmax(axis=1) == TRUE) > 0.9


def test_a_data_set_gives_the_same_as_its_arrays():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            part = slice(40 * index, 40 * (index + 1))
            return X[part], LABELS[part], weights[part]

    weights = np.arange(240.0)
    found, expected = clean(None, Batches()), clean(sample_weight=weights)
    np.testing.assert_array_equal(found.issues.index, expected.issues.index)
    for weight, other in zip(found.model.get_weights(), expected.model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)


def test_label_vectors_are_integers_for_a_loss_of_integers():
    found, expected = clean(np.eye(3)[LABELS]), clean()
    np.testing.assert_array_equal(found.issues.given, expected.issues.given)


def test_a_loss_of_label_vectors_is_refused():
    def make():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "categorical_crossentropy")
        return model

    for probabilities in (None, out_of_sample()):
        with pytest.raises(ValueError, match="`make_model` must make models of a loss of integers"):
            keras_het.clean_labels(
                make, X, np.eye(3)[LABELS], epochs=1, folds=3, probabilities=probabilities, verbose=0
            )


def test_a_class_that_is_lost_is_named():
    names = np.where(np.arange(240) < 4, "elk", NAMES[LABELS])
    p = np.insert(out_of_sample(), 2, 0.0, axis=1)  # cat, dog, elk, owl
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keras_het.clean_labels(lambda: make_model(4), X, names, probabilities=p, epochs=1, verbose=0)
    assert any(str(warning.message).startswith("No example of elk is left to train on") for warning in caught)


REFUSED = {
    "one class": ({"y": ["a"] * 240}, "`y` must be of at least two classes. Received: 1"),
    "a missing label": ({"y": [None, *LABELS[1:]]}, r"`y` must have a label for each example. Received: none at \[0\]"),
    "other lengths": ({"y": LABELS[:9]}, "`y` must have a label for each of the 240 examples. Received: 9"),
    "too few": (
        {"y": [9, 9, *LABELS[2:]], "probabilities": None},
        "`y` must have an example of each class for each of the 3 folds. Received: 2 of 9",
    ),
    "an action": ({"action": "delete"}, "`action` must be one of 'drop', 'correct'. Received: action='delete'"),
    "other classes": (
        {"probabilities": np.full((240, 4), 0.25)},
        r"`probabilities` must be of the 3 classes of `y`, shape \(N, 3\), .* Received: shape \(240, 4\)",
    ),
}


def test_features_that_are_not_finite_are_refused_before_the_discriminant():
    x = np.where(np.arange(240)[:, None] == 21, np.nan, X)
    with pytest.raises(ValueError, match=r"`x` must be finite\. Received: nan or infinity in example 21"):
        keras_het.clean_labels(None, x, LABELS, verbose=0)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_cleaned_is_refused(case):
    arguments, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        clean(**arguments)


def test_a_frame_of_texts_is_refused():
    pandas = pytest.importorskip("pandas")  # the session `tests` has it
    with pytest.raises(ValueError, match="`x` must be a frame of numbers"):
        clean(x=pandas.DataFrame({"a": ["b"] * 240}))
