"""The whole of `choose`: it takes what is better, drops what is worse, and says why."""

import sys

import keras
import numpy as np
import pytest

from keras_het.training import DEFAULTS, Candidate, LinearDiscriminant, choose, cross_val_probabilities
from keras_het.training.candidates import SAFEST
from tests.training.tasks import SHORT, SHORT_TRAININGS, TRUE, Cheat, Constant, Unlucky, X, Y, make_model, maker, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

DISCRIMINANT = LinearDiscriminant.name


def test_a_better_candidate_is_chosen_and_a_worse_one_dropped():
    found = short(Cheat(), Constant(), epochs=6)
    _, cheat, constant = found.table
    assert found.name == "cheat"
    assert cheat.difference > cheat.error > 0
    assert constant.dropped
    assert constant.trainings == 1
    assert found.trainings == 3 + 3 + 1 + 1
    log_p = found.model.predict(X, verbose=0)
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1.0, atol=1e-5)
    assert np.mean(log_p.argmax(1) == TRUE) > 0.8
    assert found.model.evaluate(X, Y, verbose=0)[1] == pytest.approx(np.mean(log_p.argmax(1) == Y), abs=1e-6)


def test_the_model_is_saved_and_trains_on(tmp_path):
    found = short()
    found.model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), found.model.predict(X, verbose=0))
    loaded.fit(X, Y, verbose=0)


def test_a_worse_candidate_is_not_chosen():
    found = short(Constant())
    assert found.name == "early stopping"
    assert found.reason.startswith(
        "early stopping: no candidate predicts clearly more of the held-out labels; the near"
    )
    assert [score.difference for score in found.table[:1]] == [0.0]


@pytest.mark.planted
def test_a_choice_of_the_first_would_be_caught(monkeypatch):
    monkeypatch.setattr(sys.modules[choose.__module__], "choose_one", lambda entries, *others: entries[0])
    assert short(Cheat(), Constant(), epochs=6).name == "early stopping"


def test_the_probabilities_are_out_of_sample():
    x = np.concatenate([X, np.arange(len(X), dtype="float32")[:, None] / len(X)], axis=1)
    seen = []

    class Look(Candidate):
        name = "look"

        def labels(self, task, strength):
            seen.append((set(task.x[:, -1]), task.transition.shape))
            return task.y

    found = short(Look(), x=x, make_model=maker(lambda: keras.layers.Dense(8, "relu")), trainings=30)
    assert found.probabilities.shape == (240, 3)
    np.testing.assert_allclose(found.probabilities.sum(1), 1.0, atol=1e-5)
    assert [len(part) for part, _ in seen] == [160, 160, 160] + [240] * (found.name == "look")
    assert not set.intersection(*(part for part, _ in seen[:3]))  # each example is held out once
    assert seen[0][1] == (3, 3)


def test_random_labels_are_not_learned_by_heart():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 6)).astype("float32"), rng.integers(3, size=300)
    with pytest.raises(ValueError, match="The model must predict held-out labels better than the largest class does"):
        choose(make_model, x, y, **{**SHORT, "epochs": 6})


def test_the_last_epochs_are_said_to_be_the_best():
    assert (
        "Its best epoch is among the last"
        in short(make_model=maker(lambda: keras.layers.Dense(8, "relu"), rate=0.03), epochs=5).reason
    )


def test_a_candidate_of_ten_lines():
    class Focal(Candidate):
        name, strengths = "focal loss", (1.0, 2.0)

        def loss(self, task, strength):
            return keras.losses.CategoricalFocalCrossentropy(gamma=strength, from_logits=True)

        def labels(self, task, strength):
            return keras.utils.to_categorical(task.y, task.units)

    found = short(Focal())
    assert [score.name for score in found.table] == ["early stopping", "focal loss, 1.0", "focal loss, 2.0"]


def test_the_default_candidates_train():
    found = choose(make_model, X, Y, **{**SHORT, "folds": 2, "epochs": 5})
    of_functions = [candidate.name for candidate in DEFAULTS if not candidate.on_features]
    assert [score.name for score in found.table] == of_functions


def test_of_features_a_discriminant_is_the_candidate_for_a_doubt():
    """It is solved on all parts of the data, and no training."""
    found = choose(None, X, Y, epochs=2, candidates=[Constant(), LinearDiscriminant()], trainings=6, folds=3, verbose=0)
    assert [(score.name, score.trainings) for score in found.table][::2] == [("early stopping", 3), (DISCRIMINANT, 3)]
    assert found.trainings <= 6
    assert found.name == DISCRIMINANT
    assert "If rules or another model made the labels" not in found.reason
    p = cross_val_probabilities(None, X, Y, folds=3, verbose=0)
    assert np.mean(found.probabilities.argmax(1) == p.argmax(1)) > 0.97  # those of the discriminant, not of two epochs
    assert np.mean(found.model.predict(X, verbose=0).argmax(1) == TRUE) > 0.9


def test_who_is_not_content_with_a_discriminant_is_told_of_labels_of_rules():
    """A rule on a feature that hardly varies, which a discriminant does not see beside the others."""
    x = np.random.default_rng(0).normal(size=(240, 4)).astype("float32") * np.array([9.0, 1.0, 1.0, 0.03], "float32")
    how = {"candidates": [LinearDiscriminant()], "optimizer": keras.optimizers.Adam(0.3), "folds": 2, "verbose": 0}
    found = choose(None, x, (x[:, 3] > 0).astype(int), epochs=10, **how)
    assert found.name == "early stopping"
    assert "If rules or another model made the labels" in found.reason


def test_a_doubt_is_for_the_safest_candidate(monkeypatch):
    class Same(Candidate):
        name = "same"

    monkeypatch.setattr(sys.modules[choose.__module__], "SAFEST", {Same: (1.0, 1.0)})
    found = short(Same(), Constant())
    assert found.name == "same"
    assert found.reason.startswith("same: no candidate predicts clearly more of the held-out labels, and it is the saf")
    assert set(SAFEST) <= {type(candidate) for candidate in DEFAULTS}


def test_few_trainings_measure_others_on_fewer_folds_and_then_fewer_of_them(capsys):
    found = short(Cheat(), Constant(), trainings=7, verbose=1)
    assert [score.trainings for score in found.table] == [3, 1, 1]
    assert found.trainings <= 7
    assert np.isfinite(found.probabilities).all()
    plan = "early stopping on 3 parts of the data, 2 other methods on 1 of them, and the last one."
    assert f"At most 6 trainings of up to 3 epochs: {plan}" in capsys.readouterr().out
    found = short(Cheat(), Constant(), trainings=5)
    assert [score.name for score in found.table] == ["early stopping", "cheat"]
    assert found.trainings == 5
    with pytest.raises(ValueError, match="`trainings` must be at least 4, for early stopping on each of 3 parts"):
        short(trainings=3)


def test_a_training_that_diverges_is_not_chosen():
    class Diverging(Candidate):
        name = "diverging"

        def sample_weight(self, task, strength):
            return np.full(len(task.y), np.nan)

    assert short(Diverging()).name == "early stopping"


def test_the_table_prints():
    found = short(Cheat(), Unlucky(), epochs=6)
    lines = str(found).splitlines()
    assert lines[0].split("  ")[0] == "candidate"
    assert "<- chosen" in lines[2]
    assert lines[5] == found.reason
    assert lines[6].startswith("label noise: ")
    assert 0 <= found.diagnosis.disputed <= 1
    assert found._repr_html_().count("<tr>") == 5
    assert len(found.plot().axes[0].get_yticks()) == 4


def test_the_table_is_a_frame():
    pytest.importorskip("pandas")  # the session `tests` has it
    found = short(Constant())
    assert list(found.to_frame().index) == ["early stopping", "constant"]


def test_the_likelihood_chooses_what_predicts_labels_with_the_right_confidence():
    class Sharp(Candidate):
        """As accurate, and far too sure."""

        name = "sharp"

        def head(self, task, strength):
            return [*super().head(task, strength), keras.layers.Rescaling(8.0)]

    found = short(Sharp(), criterion="loss", epochs=6)
    plain, sharp = found.table
    p = found.probabilities[np.arange(len(Y)), Y]
    assert found.name == "early stopping"
    assert sharp.score > plain.score + 0.2  # a loss: the smaller, the better
    assert sharp.difference < -0.2
    assert plain.score == pytest.approx(-np.log(p).mean(), abs=0.05)  # there at the best epoch of each fold
    assert "no candidate is clearly more likely; the nearest is sharp with -" in found.reason
