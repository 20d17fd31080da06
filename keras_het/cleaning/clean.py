"""The whole way from labels that may be wrong to a model without them."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_het.analysis import diagnose_noise
from keras_het.analysis.label_quality import LabelIssues, check_distributions
from keras_het.base.batches import as_arrays, as_numpy, count_examples, take
from keras_het.base.classes import Encoded, encode
from keras_het.base.validation import as_float64, check_choice, check_maker
from keras_het.cleaning.issues import issues_of
from keras_het.cleaning.result import CleanedLabels
from keras_het.inspection.check import leaves
from keras_het.inspection.counterparts import labels_for
from keras_het.report import report
from keras_het.selection import cross_val_probabilities

ACTIONS = ("drop", "correct")


def clean_labels(
    make_model: Callable[[], keras.Model],
    x: Any,
    y: Any = None,
    folds: int = 5,
    *,
    probabilities: Any = None,
    action: str = "drop",
    report_path: str | os.PathLike | None = None,
    sample_weight: Any = None,
    seed: int = 0,
    verbose: int = 1,
    **fit_arguments: Any,
) -> CleanedLabels:
    """Finds wrong labels, says which kind of noise they are, and trains a model without them.

    The steps: `selection.cross_val_probabilities`; the class of each example, by `analysis.diagnose_noise`; `report`,
    if it is wanted; then a new model is trained. cleanlab calls the whole `CleanLearning`.

    A label is an issue if it is not the class found. `analysis.find_label_issues` finds fewer; where whole classes are
    swapped, a model trained without the issues is much better than one without these few
    (`benchmarks/results/cleaning.md`). If the kind of noise is "none", the issues are the few.

    Labels may be names, or integers from 0 on. The model sees the integers, or the places of the names in the result's
    `classes`; `to_frame()` has the names.

    Args:
        make_model: function without arguments that returns a new compiled model of the K classes of `y`, whose loss
            takes integers, for all labels become integers here. Only frozen layers may be the same in all models.
        x: examples: an array, a list, tuple or dict of them, or a pandas frame of numbers; or a data set of batches
            (x, y), which is read once and kept in memory, and numbered in that order.
        y: their labels, `(N,)`: texts or integers, also a Series or Categorical of pandas, or label vectors; None for a
            data set.
        folds: the number of parts, and of models, from 2 to N; every class needs as many examples.
        probabilities: out of sample, `(N, K)`, each row of sum 1, the classes in sorted order (of a Categorical: in its
            own); None trains models for them.
        action: of the issues: "drop" trains without their examples, "correct" with the classes found.
        report_path: the folder for a page and a table of the labels (`report`); None for none.
        sample_weight: of the examples in `fit`, shape `(N,)`, or None.
        seed: of the split and of the models.
        verbose: 1 for a progress bar, 0 for none.
        fit_arguments: for `fit`, such as epochs, batch_size, callbacks.
    Returns:
        `CleanedLabels`; print it.
    Raises:
        ValueError: for one class, missing labels, a class of fewer examples than folds, other lengths, models of other
            classes or of a loss of label vectors, or what the steps refuse.
        ImportError: for a report without Matplotlib or Jinja.
    Warns: if no example of a class is left to train on.

    Example:
        >>> def make_model():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "softmax")])
        ...     model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
        ...     return model
        >>> x = np.eye(2).repeat(50, axis=0)
        >>> y = ["dog"] * 3 + ["cat"] * 47 + ["dog"] * 50
        >>> found = clean_labels(make_model, x, y, folds=2, epochs=10, verbose=0)
        >>> sorted(found.issues.index[:3].tolist()), found.classes[found.issues.suggested[:3]].tolist()
        ([0, 1, 2], ['cat', 'cat', 'cat'])
    """
    make = _maker(make_model)
    check_choice("action", action, ACTIONS)
    index, (x, y) = _index(x, y), as_arrays(_arrays(x), y)
    encoded = encode(y, count_examples(x))
    _check(encoded, folds if probabilities is None else 1)
    if probabilities is None:
        probabilities = cross_val_probabilities(
            make, x, encoded.labels, folds, sample_weight=sample_weight, seed=seed, verbose=verbose, **fit_arguments
        )
    p = as_float64(probabilities)
    if p.ndim != 2 or p.shape[1] != len(encoded.classes):
        rule = f"be of the {len(encoded.classes)} classes of `y`, shape (N, {len(encoded.classes)})"
        raise ValueError(f"`probabilities` must {rule}, as what the models return. Received: shape {p.shape}")
    p = check_distributions(p)
    diagnosis = diagnose_noise(p, encoded.labels, class_names=encoded.classes.tolist())
    issues = issues_of(p, encoded.labels, diagnosis)
    labels, kept = cleaned(encoded.labels, issues, action)
    weight = None if sample_weight is None else np.asarray(as_numpy(sample_weight))[kept]
    _warn_of_lost(encoded, labels[kept])
    keras.utils.set_random_seed(seed + folds)
    model = make()
    model.fit(take(x, kept), labels[kept], sample_weight=weight, verbose=0, **fit_arguments)
    page = None
    if report_path is not None:
        names, title = encoded.classes.tolist(), "Labels and probabilities"
        page = report(model, x, encoded.labels, names, report_path, probabilities=p, issues=issues, title=title)
    return CleanedLabels(model, encoded.classes, issues, diagnosis, p, action, page, index)


def cleaned(labels: np.ndarray, issues: LabelIssues, action: str) -> tuple[np.ndarray, np.ndarray]:
    """The labels with the suggested classes, if these are wanted, and the indices of the examples to train on."""
    wrong, found = issues.index[issues.is_issue], labels.copy()
    if action == "drop":
        return found, np.setdiff1d(np.arange(len(labels)), wrong)
    found[wrong] = issues.suggested[issues.is_issue]
    return found, np.arange(len(labels))


def _maker(make_model: Callable[[], keras.Model]) -> Callable[[], keras.Model]:
    """The function, whose models must have a loss that takes integers, or is not known."""
    check_maker(make_model)

    def make() -> keras.Model:
        model = make_model()
        for loss in leaves(model.loss) if getattr(model, "compiled", False) else ():
            if labels_for(loss, 0) == "vectors":
                rule = (
                    "make models of a loss of integers, as SparseCategoricalCrossentropy, for all labels become those"
                )
                raise ValueError(f"`make_model` must {rule}. Received: {getattr(loss, 'name', loss)}")
        return model

    return make


def _warn_of_lost(encoded: Encoded, labels: np.ndarray) -> None:
    """Warns of classes of which no label is left."""
    lost = [str(encoded.classes[place]) for place in np.setdiff1d(encoded.labels, labels)]
    if lost:
        warnings.warn(
            f"No example of {', '.join(lost)} is left to train on, for every label of it is an issue. It may be too "
            'rare for the folds: look at `issues`; action="correct" keeps the examples.',
            stacklevel=3,
        )


def _index(x: Any, y: Any) -> Any:
    """The index of a pandas frame or series, of x or else of y; None if there is none."""
    found = [part.index for part in (x, y) if hasattr(part, "iloc")]
    return found[0] if found else None


def _arrays(x: Any) -> Any:
    """The inputs, a pandas frame as an array of float32."""
    if not hasattr(x, "iloc"):
        return x
    try:
        return x.to_numpy("float32")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`x` must be a frame of numbers. Received: columns of {sorted(map(str, x.dtypes))}"
        ) from error


def _check(encoded: Encoded, folds: int) -> None:
    counts = np.bincount(encoded.labels)
    rarest = np.where(counts > 0, counts, len(encoded.labels)).argmin()
    if counts[rarest] < folds:
        rule = f"have an example of each class for each of the {folds} folds"
        raise ValueError(f"`y` must {rule}. Received: {counts[rarest]} of {encoded.classes[rarest]!s}")
