import pickle
import random

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_no_attributes_set_in_init, check_parameters_default_constructible
from sklearn.utils.validation import has_fit_parameter

import keras_het
from keras_het import NoisyLabelClassifier
from keras_het.labels.methods import EarlyStopping
from tests.labels.tasks import SHORT_TRAININGS, Cheat, Constant, clusters

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

X, Y, TRUE = clusters(240, seed=1)
SHORT = {"hidden": (8,), "epochs": 3, "learning_rate": 0.1, "folds": 2, "methods": (), "random_state": 0}


def test_it_chooses_and_predicts_names():
    names = np.array(["ant", "bee", "cat"])
    fitted = NoisyLabelClassifier(**{**SHORT, "methods": (EarlyStopping(), Constant()), "epochs": 6}).fit(X, names[Y])
    assert fitted.choice_.name == "early stopping"
    assert np.mean(fitted.predict(X) == names[TRUE]) > 0.7
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1.0, atol=1e-12)


def test_the_methods_reach_the_choice():
    trials = NoisyLabelClassifier(**{**SHORT, "methods": (Cheat(), Constant())}).fit(X, Y).choice_.trials
    assert [trial.name for trial in trials] == ["early stopping", "cheat", "constant"]


def test_equal_states_give_equal_probabilities_and_no_state_changes():
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].copy()
    fitted = NoisyLabelClassifier(**SHORT).fit(X, 10 * Y + 10)
    assert fitted.choice_.classes.tolist() == fitted.classes_.tolist() == [10, 20, 30]
    p = fitted.predict_proba(X)
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    np.testing.assert_array_equal(NoisyLabelClassifier(**SHORT).fit(X, Y).predict_proba(X), p)
    assert not np.array_equal(NoisyLabelClassifier(**{**SHORT, "random_state": 1}).fit(X, Y).predict_proba(X), p)


def test_it_is_an_estimator_of_scikit_learn():
    check_no_attributes_set_in_init("NoisyLabelClassifier", NoisyLabelClassifier())
    check_parameters_default_constructible("NoisyLabelClassifier", NoisyLabelClassifier())
    search = GridSearchCV(
        make_pipeline(StandardScaler(), NoisyLabelClassifier(**SHORT)),
        {
            "noisylabelclassifier__hidden": [(4,), (8,)],
        },
        cv=2,
    )
    assert search.fit(X, Y).best_params_["noisylabelclassifier__hidden"] in ((4,), (8,))
    p = cross_val_predict(NoisyLabelClassifier(**SHORT), X, Y, cv=2, method="predict_proba")
    assert p.shape == (240, 3)


def test_weights_are_refused_and_the_table_is_shown_if_wanted(capsys):
    with pytest.raises(ValueError, match=r"`fit` must be called with X and y alone: .* Received: sample_weight"):
        NoisyLabelClassifier(**SHORT).fit(X, Y, sample_weight=np.ones(240))
    assert not has_fit_parameter(NoisyLabelClassifier(), "sample_weight")
    NoisyLabelClassifier(**SHORT).fit(X, Y)
    assert capsys.readouterr().out == ""
    NoisyLabelClassifier(**SHORT, verbose=1).fit(X, Y)
    assert "early stopping" in capsys.readouterr().out


def test_a_pickle_predicts_the_same():
    fitted = NoisyLabelClassifier(**SHORT).fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert str(again.choice_) == str(fitted.choice_)
    assert clone(fitted).get_params() == fitted.get_params()


def test_it_is_public():
    assert "NoisyLabelClassifier" in dir(keras_het)
    with pytest.raises(ValueError, match="`y` must have at least two classes"):
        NoisyLabelClassifier(**SHORT).fit(X, np.zeros(240, int))
