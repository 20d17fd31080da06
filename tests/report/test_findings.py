"""The numbers of a report are those of the package's own functions, and what cannot be told is said."""

import dataclasses

import keras
import numpy as np
import pytest
from scipy import special

from keras_het import covariances, explain
from keras_het.callbacks import TrainingDynamics
from keras_het.layers import HeteroscedasticDense
from keras_het.metrics import BrierScore
from keras_het.report import noise
from keras_het.report.advice import next_steps, summary
from keras_het.report.findings import collect
from tests.report.models import CLASSES, EXAMPLES, confuse, make_data, plain, seen, with_flips, with_head

pytestmark = pytest.mark.once

X, Y = make_data()
NAMES = ["ant", "bee", "cat", "dog"]


def test_planted_errors_are_the_suspects_and_the_planted_pair_the_first():
    found = collect(confuse(with_head(), 1, 3), X, Y, NAMES)
    assert set(found.issues.index[found.issues.is_issue]) == set(range(10))
    assert found.number_of_issues == 10
    (pair,) = found.pairs
    assert (pair.first, pair.second, pair.covariance < 0) == ("bee", "dog", True)
    assert found.missing == []
    assert found.accuracy == pytest.approx(110 / EXAMPLES)


def test_errors_that_are_many_of_one_kind_are_confusable():
    """Of 27 examples of the second class with their own label 13 get that of the last.

    The ten planted errors are of all classes.
    """
    swapped = np.flatnonzero((Y == 1) & (np.arange(EXAMPLES) >= 10))[:13]
    y = Y.copy()
    y[swapped] = 3
    issues = collect(with_head(), X, y).issues
    kinds = dict(zip(issues.index.tolist(), issues.kind.tolist(), strict=True))
    assert {kinds.pop(index) for index in swapped.tolist()} == {"confusable"}
    assert {kinds.pop(index) for index in range(10)} == {"wrong"}
    assert set(kinds.values()) == {""}


def test_advice_names_the_classes_between_which_most_suspects_are_whatever_the_covariance_says():
    """The head has noise between the classes bee and dog; the labels are swapped between cat and dog."""
    swapped = np.flatnonzero(np.isin(Y, (2, 3)) & (np.arange(EXAMPLES) >= 10))[:16]
    y = Y.copy()
    y[swapped] = 5 - Y[swapped]
    found = collect(confuse(with_head(), 1, 3), X, y, NAMES)
    assert {*found.pair_flips[0][:2]} == {"cat", "dog"}
    assert found.pair_flips[0][2] >= 16
    assert len(found.pair_flips) == 1  # of the ten errors of all classes no pair has more than by chance
    assert found.number_of_issues == 26
    said = "“cat” and “dog” are taken for each other more often than by chance: 18 of 26 suspects are between the two."
    assert said in " ".join(summary(found))
    (step,) = (step for step in next_steps(found) if "instructions for labelling" in step)
    assert "bee" not in step


def test_the_worst_is_one_of_the_suspects():
    """The label of example 50 is the least probable of all, but no suspect: the model is sure of nothing there."""
    p = np.full((EXAMPLES, CLASSES), 0.02)
    p[np.arange(EXAMPLES), np.arange(EXAMPLES) % CLASSES] = 0.94
    p[50] = [0.34, 0.325, 0.01, 0.325]
    found = collect(plain(), X, Y, NAMES, probabilities=p)
    assert found.issues.index[0] == 50
    assert not found.issues.is_issue[0]
    assert f"The worst is example {found.issues.index[1]}," in " ".join(summary(found))
    assert sum(count for *_, count in found.flips) == found.number_of_issues == 10
    assert found.flips[0] == ("bee", "ant", 3)


def test_the_scores_are_those_of_the_metrics():
    found, p = collect(plain(), X, Y), plain().predict(X, verbose=0)
    assert found.nll == pytest.approx(float(keras.metrics.SparseCategoricalCrossentropy()(Y, p)), rel=1e-5)
    assert found.brier == pytest.approx(float(BrierScore()(Y, p)), rel=1e-5)
    assert found.calibration.error == pytest.approx(explain.calibration(p, Y).error)
    assert found.curve.area == pytest.approx(explain.risk_coverage(p, Y).area)


def test_the_settings_of_the_head_and_its_noise_in_temperatures():
    model = confuse(with_head(temperature=2.0, integrator="taylor"), 0, 2)
    head = collect(model, X, Y).noise.head
    assert (head.name, head.link, head.integrator, head.temperature, head.learned) == (
        "head",
        "Softmax",
        "Taylor()",
        2.0,
        False,
    )
    assert head.covariance == "LowRank, 2 factors"
    variances = np.diagonal(explain.covariance(model, X))
    assert head.noise_sd == pytest.approx(np.sqrt(variances.mean()))
    assert head.relative_temperature == pytest.approx(1 / head.noise_sd)


def test_probabilities_out_of_sample_are_taken_for_the_models():
    p = np.roll(plain().predict(X, verbose=0), 1, axis=1)
    found = collect(with_head(), X, Y, probabilities=p)
    assert found.out_of_sample
    assert found.accuracy == pytest.approx(np.mean(p.argmax(axis=1) == Y))
    assert found.noise is not None
    assert not any("trained on these examples" in step for step in next_steps(found))
    assert any("trained on these examples" in step for step in next_steps(collect(with_head(), X, Y)))


def test_issues_that_somebody_found_are_the_suspects():
    all_of_them = dataclasses.replace(collect(plain(), X, Y).issues, is_issue=np.ones(len(Y), bool))
    found = collect(plain(), X, Y, issues=all_of_them)
    assert found.number_of_issues == len(Y)
    assert f"{len(Y)} labels" in " ".join(summary(found))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (plain, "The noise: not known. The model has no head of keras_het"),
        (with_flips, "The covariance of a head: there is none. The layer 'flips' has learned a transition matrix"),
        (
            lambda: with_head(num_factors=None, covariance=covariances.Latent(2)),
            "Confused classes: not known. `model` must have a head whose factor is of the logits",
        ),
    ],
)
def test_what_a_model_does_not_tell_is_said_and_the_rest_is_there(make, text):
    found = collect(make(), X, Y)
    assert len(found.missing) == 1
    assert found.missing[0].startswith(text)
    assert found.pairs is None
    assert found.number_of_issues == 10
    assert summary(found)


def test_a_subclassed_model_has_no_graph_to_find_the_noise_in():
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.head = HeteroscedasticDense(CLASSES, num_factors=1)

        def call(self, inputs):
            return self.head(inputs)

    found = collect(Subclassed(), X, Y)
    assert found.missing[0].startswith("The noise: not known. `model` must be functional or Sequential, and built")
    assert np.isnan(found.noise.head.noise_sd)
    assert found.noise.covariance is None


def test_labels_of_one_class_are_no_suspects_but_have_metrics():
    found = collect(plain(), X, np.zeros(EXAMPLES, int))
    assert found.issues is None
    assert (
        found.missing[-1]
        == "Wrong labels: not known. All labels are of one class, 0: there is nothing to hold them against."
    )
    assert found.accuracy == pytest.approx(0.25)
    assert not any("Trust nothing" in step for step in next_steps(found))


def test_many_examples_are_drawn_from_for_the_covariance(monkeypatch):
    monkeypatch.setattr(noise, "MOST_EXAMPLES", 30)
    model = with_head()
    found = collect(model, {"a": X}["a"], Y)
    assert found.noise.examples == 30
    chosen = np.sort(np.random.default_rng(0).choice(EXAMPLES, 30, replace=False))
    np.testing.assert_allclose(found.noise.covariance, explain.covariance(model, X[chosen]))


def diverged():
    model = plain()
    model.layers[-1].kernel.assign(np.full((CLASSES, CLASSES), np.nan))
    return model


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: collect(plain(), X[:0], Y[:0]), "`x` must have at least one example. Received: none"),
        (lambda: collect(plain(), X, Y + 1), "`y` must be in [0, 4). Received: 4 at [2]"),
        (lambda: collect(plain(), X, Y - 1), "`y` must be in [0, inf). Received: -1 at [3]"),
        (lambda: collect(plain(), X, Y[:-1]), "`y` must have an entry for each of the 120 examples. Received: 119"),
        (
            lambda: collect(plain(), X, np.eye(CLASSES)[Y]),
            "`y` must be integers of shape (N,), as y.argmax(-1) of label vectors. Received: shape (120, 4)",
        ),
        (
            lambda: collect(plain(), X, Y, ["a"]),
            "be a sequence with a name for each of the 4 classes. Received: a list of 1",
        ),
        (lambda: collect(plain(), X, Y, set(NAMES)), "a name for each of the 4 classes. Received: a set of 4"),
        (
            lambda: collect(plain(), X, Y, issues=collect(plain(), X, np.roll(Y, 1)).issues),
            "`issues` must be of the same 120 labels. Received: those of others",
        ),
        (
            lambda: collect(plain(), X, Y, issues=[3, 4]),
            "`issues` must be of `find_issues`, or None. Received: a list",
        ),
        (
            lambda: collect(plain(), X, Y, issues=collect(plain(), X[:60], Y[:60]).issues),
            "`issues` must be of the same 120 labels. Received: those of others",
        ),
        (
            lambda: collect(plain(), X, Y, batch_size=0),
            "`batch_size` must be an integer at least 1. Received: batch_size=0",
        ),
        (
            lambda: collect(diverged(), X, Y),
            "has its training diverged, or is there nan in `x`? Received: nan for example 0",
        ),
        (lambda: collect(plain(None), X, Y), "or be compiled with a loss that has from_logits=True"),
        (
            lambda: collect(with_head(link="sigmoid"), X, Y),
            "`model` must predict exclusive classes, whose probabilities sum to 1",
        ),
        (
            lambda: collect(plain(), ((X, Y) for _ in range(1)), None),
            "`x` must be arrays, so that examples have a number.",
        ),
        (
            lambda: collect(plain(), X, Y, probabilities=np.ones((3, 4))),
            "a row for each of the 120 examples. Received: shape (3, 4)",
        ),
        (
            lambda: collect(plain(), X, Y, probabilities=np.ones((120, 4))),
            "`probabilities` must be in [0, 1] and sum to 1",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)


def steps_of(found):
    return " ".join(next_steps(found))


def test_advice_follows_the_numbers():
    found = collect(confuse(with_head(), 1, 3), X, Y, NAMES)
    steps = steps_of(found)
    assert "Look at the 10 suspects" in steps
    assert "may be of the one or the other of two classes (“bee” and “dog”); the suspects do not show it" in steps
    assert "taken for each other" not in steps
    assert "above 0.05: do not read the confidence" in steps
    assert "have fewer than 20 labels" not in steps
    calm = found._replace(
        calibration=dataclasses.replace(found.calibration, error=0.01), issues=None, out_of_sample=True, noise=None
    )
    assert steps_of(calm).startswith("Nothing here asks for a change")
    assert "3 of 4 classes have fewer than 20 labels here, 3 of them none" in steps_of(
        calm._replace(labels=np.zeros(100, int))
    )
    assert "say the most frequent label always would be right for 25.8%" in steps_of(calm._replace(accuracy=0.1))


def test_suspects_that_are_of_any_two_classes_make_no_pair():
    """A quarter of the labels is any other class: every two classes have suspects between them, by chance."""
    rng = np.random.default_rng(0)
    classes = np.arange(1200) % CLASSES
    y = np.where(rng.random(1200) < 0.25, (classes + rng.integers(1, CLASSES, 1200)) % CLASSES, classes)
    p = np.full((1200, CLASSES), 0.02)
    p[np.arange(1200), classes] = 0.94
    found = collect(plain(), p, y, NAMES, probabilities=p)
    assert len(found.flips) == CLASSES * (CLASSES - 1)
    assert min(count for *_, count in found.flips) >= 10
    assert found.pair_flips == []
    assert "“" not in " ".join([*next_steps(found), *summary(found)]).split("The worst is")[0]
    assert "taken for each other" not in steps_of(found)


def test_advice_speaks_of_a_head_only_where_there_is_one():
    assert "temperature of the head" in steps_of(collect(with_head(), X, Y))
    assert "keras_het.models.scale_temperature" in steps_of(collect(plain(), X, Y))
    assert "temperature of the head" not in steps_of(collect(plain(), X, Y))


@pytest.mark.parametrize(
    ("sd", "text"), [(0.05, "nearly a plain one"), (1.0, None), (4.0, "may hide what the model knows"), (np.nan, None)]
)
def test_the_noise_is_judged_in_temperatures(sd, text):
    found = collect(with_head(), X, Y)
    found = found._replace(noise=found.noise._replace(head=found.noise.head._replace(noise_sd=sd)))
    assert ("temperatures, " in steps_of(found)) == (text is not None)
    assert text is None or text in steps_of(found)


def test_the_summary_says_it_in_words():
    text = " ".join(summary(collect(confuse(with_head(), 1, 3), X, Y, NAMES)))
    assert "Of 120 examples of 4 classes, the most probable class is the given label for 91.7%." in text
    assert (
        "10 labels (8.3%) are probably wrong, 0 of them of classes that are often taken for each other. "
        "The worst is example"
    ) in text
    assert "The two classes that share most noise are “bee” and “dog”." in text


def test_a_training_judges_the_labels():
    learned = with_head()
    found = collect(learned, X, Y, NAMES, dynamics=seen(X, Y))
    assert set(found.issues.index[found.issues.is_issue]) == set(range(10))
    loss = np.log1p(3 * np.exp(-3.0)) + 3 * np.array([10, 10, 0]) / EXAMPLES  # of each epoch, which it counts by
    np.testing.assert_allclose(found.issues.score[:10], special.expit(np.average([-3, -3, 3], weights=loss)), rtol=1e-4)
    assert (found.epochs, found.margins.shape, found.missing) == (3, (3, EXAMPLES), [])
    assert found.accuracy == collect(learned, X, Y, NAMES).accuracy
    assert any("the suspects are judged by the whole training" in step for step in next_steps(found))
    none = collect(with_head(), X, np.arange(EXAMPLES) % CLASSES, dynamics=seen(X, np.arange(EXAMPLES) % CLASSES))
    assert "No label is probably wrong, by this training." in summary(none)


def test_a_training_without_history_has_no_curves_and_one_of_other_labels_is_refused():
    found = collect(plain(), X, Y, dynamics=seen(X, Y, history=False))
    assert (found.number_of_issues, found.margins) == (10, None)
    assert "`history` must be True" in found.missing[-1]
    rule = (
        "`dynamics` must be of the same 120 examples, labels and 4 classes. Received: one of 120 examples and 4 classes"
    )
    with pytest.raises(ValueError, match=rule):
        collect(plain(), X, (Y + 1) % CLASSES, dynamics=seen(X, Y))
    with pytest.raises(ValueError, match="TrainingDynamics must have seen an epoch"):
        collect(plain(), X, Y, dynamics=TrainingDynamics(X, Y))
