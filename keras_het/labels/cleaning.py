"""From noisy labels to a model, and to the labels that it disagrees with."""

import dataclasses
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import argmax_rows, check_same_index, is_data_set
from keras_het.base.refusal import outside_level
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_choice, check_integer
from keras_het.labels.classes import joined_names
from keras_het.labels.data import Data, read, stratified_folds
from keras_het.labels.estimation import check_distributions
from keras_het.labels.result import ACTIONS, Cleaned, Examined
from keras_het.labels.training import networks
from keras_het.labels.training.comparison import Difference, check_learned, difference
from keras_het.labels.training.learners import Learner, NetworkLearner, learner_of
from keras_het.labels.training.trainer import MAX_SEED, scores_of

MIN_CLASS_FRACTION = 0.05  # of the labels; the model must name such a class
MIN_NAMED_FRACTION = 0.2  # of the number of labels of a class, and the other way round
RARELY_NAMED = (
    "So it disagrees with most of these labels, correct or not. Remedy: pass a classifier that weighs classes equally, "
    'such as LogisticRegression(class_weight="balanced").'
)
OFTEN_NAMED = (
    "Most of these predictions are wrong, if the labels have about the right frequencies. Then pass a classifier with "
    "class priors as in the labels, such as LogisticRegression()."
)
HOW = {"drop": "without", "correct": "with the suggested classes of"}


def clean(
    classifier: Any,
    x: Any,
    y: Any = None,
    *,
    votes: Any = None,
    epochs: int | None = None,
    probabilities: Any = None,
    action: str | None = None,
    folds: int = 5,
    sample_weight: Any = None,
    class_names: Any = None,
    batch_size: int = 128,
    resume_path: str | os.PathLike | None = None,
    report_path: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 1,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    steps_per_epoch: int | None = None,
) -> Cleaned:
    """Finds the labels that a model disagrees with, and trains a new model.

    `clean` predicts each label by a model that was trained on the other folds. `result.issues` ranks the labels by
    these predictions, the most likely errors first (see `find_issues`); `result.issues.to_frame()` has all of them with
    the names of the classes. Then each fold is predicted again by a model without the issues of the other folds, which
    models that have not seen the fold choose. The final model is trained without issues only if held-out labels are
    predicted better so: if the mean accuracy of the classes rises by more than one standard error. Otherwise it is
    trained on all labels. No class loses all of its labels. With five folds of a network, these are 15 more trainings;
    an `action` saves them.

    Without a `classifier`, x are features. Three discriminants and five logistic regressions are compared, by the mean
    accuracy of the classes on held-out noisy labels. The first of the best is used. With more than 20,000 examples,
    only discriminants are compared. A discriminant has equal class priors, and the priors of logistic regression are
    the frequencies of the labels. So the discriminant names rare classes more often.

    Args:
        classifier: any scikit-learn classifier with `predict_proba`, which is cloned for each training (without
            `sample_weight` in its `fit`, it reads the most probable class of votes, and no column names); a function
            without arguments that returns a new Keras model of the K classes, compiled with a loss of integer labels; a
            trained Keras model, whose features are used, the inputs of its last Dense layer; or None, if `x` are
            features, `(N, D)`.
        x: examples: arrays, memory maps, a numeric pandas frame, or a data set of batches (x, y) in a fixed order, read
            once. A KerasHub task accepts raw images and strings.
        y: argument of `choose`. The model is trained on integers, indices into `result.classes`.
        votes: argument of `choose`.
        epochs: number of epochs of each training of a function's models; None for any other classifier.
        probabilities: out-of-sample probabilities, `(N, K)`, each row of sum 1, with columns in the order of the
            classes, sorted or `class_names`; None computes them by cross-validation.
        action: "drop" trains without the issues, "correct" trains on their suggested classes, "keep" on all labels.
            None drops them if held-out labels say so, and keeps them if you pass `probabilities`.
        folds: number of folds, from 2 to N.
        sample_weight: weights of the examples in training, `(N,)`; None for equal ones or the data set's weights.
        class_names: argument of `choose`.
        batch_size: size of the batches of training and prediction.
        resume_path: argument of `choose`, for a function.
        report_path: argument of `choose`.
        seed: argument of `choose`.
        verbose: argument of `choose`.
        callbacks: argument of `choose`, for a function.
        steps_per_epoch: argument of `choose`, for a function.
    Returns:
        `Cleaned`; print it.
    Raises:
        ValueError: for labels that `choose` refuses, or models that learned nothing: they are no better than the
            majority class, and give held-out labels no more probability than shuffled labels.
    Warns: if the model is not clearly better than the majority class; if a data set shuffles itself; if a class has
        fewer examples than folds; if the model hardly ever predicts a class that has 5% of the labels, or predicts a
        class five times as often as its labels say; if a network is clearly worse than logistic regression on the same
        features.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = np.eye(2).repeat(50, axis=0) + 0.1 * rng.normal(size=(100, 2))
        >>> y = ["dog"] * 3 + ["cat"] * 47 + ["dog"] * 50
        >>> result = clean(None, x, y, verbose=0)
        >>> sorted(result.issues.index[:3].tolist()), result.classes[result.issues.suggested[:3]].tolist()
        ([0, 1, 2], ['cat', 'cat', 'cat'])
    """
    start = time.perf_counter()
    if action is not None:
        check_choice("action", action, (*ACTIONS, "keep"))
    check_integer("seed", seed, 0, MAX_SEED)
    check_same_index(x=x, y=y, votes=votes, probabilities=probabilities)
    options: dict[str, Any] = {"epochs": epochs, "resume_path": resume_path, "callbacks": callbacks}
    options |= {"steps_per_epoch": steps_per_epoch, "batch_size": batch_size, "seed": seed, "folds": folds}
    source, data = _examples(
        classifier, x, batch_size, y=y, votes=votes, sample_weight=sample_weight, class_names=class_names
    )
    inner = NetworkLearner.inner_folds + 1  # trainings of each fold that test whether to drop issues
    rounds = (probabilities is None) * folds * (1 + inner * (action is None))
    learner = learner_of(classifier, data, rounds=rounds, verbose=verbose, **options)
    learner.check(data)
    with learner.running():
        fold_of = stratified_folds(data.labels, folds, seed, data.classes)
        if probabilities is None:
            p = learner.cross_validate(data, fold_of, seed)
            learner.check_probabilities(p, data, fold_of)
        else:
            p = _check_probabilities(probabilities, data)
        _warn_of_priors(p, data)
        examined = Examined(data=source, probabilities=p, training_data=data)
        rows = examined.dropped_rows
        if action is None and probabilities is None and len(rows):
            gain = _gain_without_issues(learner, data, fold_of, seed, p)
            action, reason = ("drop" if gain.is_clear else "keep"), _tested(gain, len(rows))
        else:
            reason = _untested(action, len(rows))
        if held := int(examined.issues.is_issue.sum()) - len(rows):
            reason += f" {held:,} more stay, because their classes would lose all labels."
        action = None if action == "keep" or not len(rows) else action
        model = learner.fit(data if action is None else examined.clean_data(action), seed + folds)
    described = f"{'Your probabilities' if probabilities is not None else learner.describe()}. "
    described += f"Held-out labels predicted: {np.mean(argmax_rows(p) == data.labels):.1%}."
    result = Cleaned(
        **{field.name: getattr(examined, field.name) for field in dataclasses.fields(examined)},
        model=model,
        classifier=described,
        action=action,
        reason=reason,
        learner=learner,
        seed=seed + folds,
        seconds=time.perf_counter() - start,
    )
    return result.finish(report_path, verbose, x)


def _examples(classifier: Any, x: Any, batch_size: int, **labels: Any) -> tuple[Data, Data]:
    """Returns the user's examples, and those that the model reads: features, if the classifier is a trained model."""
    if not isinstance(classifier, keras.Model):
        return (source := read(x, **labels)), source
    if is_data_set(x):
        return (features := read(networks.feature_batches(classifier, x), **labels)), features
    source = read(x, **labels)
    return source, dataclasses.replace(source, x=networks.trained_features(classifier, source.x, batch_size))


def _check_probabilities(probabilities: Any, data: Data) -> np.ndarray:
    """Returns the user's probabilities, if they predict labels."""
    p = check_distributions(probabilities, classes=data.classes, count=len(data))
    order = joined_names(data.classes.tolist())
    remedy = f"check that their columns are in the order {order} (or pass `class_names`), or use a better model"
    check_learned(p, data.labels, "probabilities", remedy)
    return p


def _gain_without_issues(learner: Learner, data: Data, fold_of: np.ndarray, seed: int, p: np.ndarray) -> Difference:
    """Returns how much better held-out labels are predicted without issues, on average by class.

    The issues that a training leaves out come from models that have not seen its fold either. Otherwise the labels that
    judge would have chosen the examples.
    """
    without = np.empty_like(p)
    for fold in np.unique(fold_of).tolist():
        is_other, rows = fold_of != fold, np.flatnonzero(fold_of != fold)
        part, inner_fold_of = data[rows], random_generator(fold).permutation(len(rows)) % learner.inner_folds
        inner = learner.cross_validate(part, inner_fold_of, seed, f"issues_{fold}")
        is_other[rows[Examined(data=part, probabilities=inner).dropped_rows]] = False
        without[fold_of == fold] = learner.predict(data, is_other, fold_of == fold, seed + fold, f"without_{fold}")
    counts = np.bincount(data.labels, data.weight, data.units)
    weight = np.ones(len(data)) if data.weight is None else data.weight
    weight = weight / np.where(counts > 0, counts, 1.0)[data.labels]  # each class counts equally
    return difference(scores_of(without, data.y, "accuracy"), scores_of(p, data.y, "accuracy"), weight)


def _tested(gain: Difference, count: int) -> str:
    """Returns the outcome of the second cross-validation, in a sentence."""
    points = f"{100 * gain.mean:+.2f} +- {100 * gain.error:.2f} points of the classes' mean accuracy on held-out labels"
    issues = f"the {count:,} issues" if count > 1 else "the issue"
    if gain.is_clear:
        return f"The final model is trained without {issues}, because such a model predicts more ({points})."
    return f"The final model is trained on all labels, because one without {issues} does not predict more ({points})."


def _untested(action: str | None, count: int) -> str:
    """Returns what the final model is trained on, in a sentence."""
    if not count:
        return "The final model is trained on all labels, because none is an issue."
    issues = f"the {count:,} issues" if count > 1 else "the issue"
    if action in HOW:
        return f"The final model is trained {HOW[action]} {issues}, as you asked."
    return f"The final model is trained on all labels{', as you asked' if action == 'keep' else ''}."


def _warn_of_priors(p: np.ndarray, data: Data) -> None:
    """Warns if the model hardly ever predicts a class with many labels, or far more often than its labels say."""
    labels, named = (np.bincount(each, minlength=data.units) for each in (data.labels, argmax_rows(p)))
    is_rarely = (labels >= MIN_CLASS_FRACTION * len(p)) & (named < MIN_NAMED_FRACTION * labels)
    is_often = (named >= MIN_CLASS_FRACTION * len(p)) & (labels < MIN_NAMED_FRACTION * named)
    for is_far, remedy in ((is_rarely, RARELY_NAMED), (is_often, OFTEN_NAMED)):
        if is_far.any():
            k = int(np.argmax(is_far * np.abs(labels - named)))
            others = int(is_far.sum()) - 1
            more = f", likewise for {others} of the other classes" * (others > 0)
            warnings.warn(
                f"The model predicts class {data.classes.tolist()[k]!r} for {named[k]:,} examples, but {labels[k]:,} "
                f"have this label{more}. {remedy}",
                stacklevel=outside_level(),
            )
