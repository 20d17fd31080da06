"""Chooses the method for noisy labels by these labels alone."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_integer
from keras_het.labels.comparison import best_of, check_learned, difference, one_standard_error, warn_if_weak
from keras_het.labels.data import stratified_folds
from keras_het.labels.diagnosis import diagnose
from keras_het.labels.methods import METHODS, EarlyStopping, Method
from keras_het.labels.progress import Progress
from keras_het.labels.result import Result, finished
from keras_het.labels.training import (
    PLAIN,
    WINDOW,
    Trainer,
    Trial,
    Unchanged,
    check_names,
    cross_validate,
    examples,
)

MAX_NAME = 60  # letters of the name of a function, which is also the name of a file
MAX_SEED = 2**31 - 1  # each fold has the next one, and Keras takes none above 2**32 - 1


def choose(
    make_model: Callable[[], keras.Model] | Sequence[Callable[[], keras.Model]] | keras.Model | None,
    x: Any,
    y: Any = None,
    *,
    epochs: int,
    methods: Sequence[Method] = METHODS,
    criterion: str = "accuracy",
    folds: int = 5,
    sample_weight: Any = None,
    class_names: Any = None,
    optimizer: Any = None,
    batch_size: int = 128,
    resume_path: str | os.PathLike | None = None,
    report_path: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 1,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    steps_per_epoch: int | None = None,
) -> Result:
    """Chooses a method, and the number of epochs, by noisy labels alone, and returns a model trained by it.

    Every method is trained on all folds but one, and predicts the labels of the fold left out, for each fold. The
    score s_an says whether method a predicts the label of example n (or is log p_a(label) with `criterion="loss"`), at
    the epoch of the best mean over neighbouring epochs. With b the method of the best mean score,

        d_n = s_bn - s_an,    chosen: the first a of the list with mean(d) <= std(d) / sqrt(N)

    This is the one-standard-error rule. The list begins with the most cautious method. If wrong labels depend on the
    example, held-out labels cannot tell a method that memorises them from one that does not; then the cautious method
    is better. Noisy labels rank predictions of the true classes as true labels do, as long as every class keeps most of
    its labels. Weights are averaged over the epochs, for all methods alike. The chosen method is trained anew on all
    examples, for its best number of epochs. Layers that act only in training, such as a transition matrix, are left
    out of the result.

    `keras.utils.set_random_seed` is called before each training, with a number that depends on `seed` and the fold.
    Afterwards the global random states are as they were before; but TensorFlow keeps the last seed.

    Args:
        make_model: a function without arguments that returns a new compiled model of the K classes. Each method
            replaces the last layer and the loss, which take integers; optimizer and schedule stay the model's.
            A list of functions: each is trained as it is, with its own head and loss, and compared; list the most
            cautious first. A model that was trained on other data stays as it is: its features, the inputs of its last
            Dense layer, are computed once. None if `x` are features, `(N, D)`, whatever their units.
        x: examples: arrays, memory maps among them, a pandas frame of numbers, or a data set of batches (x, y), which
            is read once; a KerasHub task takes raw images and strings.
        y: labels, `(N,)`: integers from 0 on, or names; None for a data set. Or votes of several annotators, `(N, M)`,
            integers or names, with -1, nan or None where one gave none; or distributions, `(N, K)` floats. Every
            example needs a label.
        epochs: number of epochs of each training; the best epoch decides.
        methods: methods to compare, the most cautious first. The plain training, `EarlyStopping`, is always among
            them, as the first if you leave it out. A `LinearDiscriminant` is left out where there is a function.
        criterion: "accuracy" or "loss", -log p(label). The likelihood compares models of the labels as they are, and
            no methods that correct them.
        folds: number of folds, at least 2.
        sample_weight: weights of the examples, `(N,)`, in training and in the comparison; None for equal ones.
        class_names: names of the K classes, for integer labels; for labels that are names, their order.
        optimizer: optimizer of models on features, cloned for each training; None for Adam with a learning rate of
            min(0.05, 0.5 / D). None beside a function.
        batch_size: size of the batches of training and prediction.
        resume_path: a folder that keeps each finished training, and the features of a trained model. A later call goes
            on from there, and ends as an uninterrupted one, to the bit. It refuses other examples (it compares 1,000),
            labels, settings and methods, and any change of the files that define methods. It compares no other code,
            as of model, layers and callbacks: use a new folder if they change. A folder in use is refused.
        report_path: folder for a page and a table of the labels; None for none.
        seed: seed of the split and of the trainings.
        verbose: 1 for the plan, a progress bar and the result; 2 also for the lines of `fit`; 0 for nothing.
        callbacks: callbacks that all trainings share.
        steps_per_epoch: argument of `fit`.
    Returns:
        `Result`; print it.
    Raises:
        ValueError: for labels or arguments out of range, a model without a head, or models that predict held-out labels
            no better than the largest class does.
    Warns: if the chosen method is clearly behind the class means of its features.
    Source: Breiman, Friedman, Olshen and Stone 1984, "Classification and regression trees", section 3.4.3, for the
        rule; the methods' own sources are in their docstrings.

    Example:
        >>> x, y = np.eye(3, dtype="float32").repeat(20, axis=0), np.arange(3).repeat(20)
        >>> def make_model():
        ...     dense = keras.layers.Dense
        ...     model = keras.Sequential([keras.Input((3,)), dense(8, "relu"), dense(3, "softmax")])
        ...     model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
        ...     return model
        >>> result = choose(make_model, x, y, epochs=20, folds=2, verbose=0)
        >>> result.model.predict(x[::20], verbose=0).argmax(-1).tolist()
        [0, 1, 2]
    """
    start = time.perf_counter()
    check_integer("folds", folds, 2)
    check_integer("seed", seed, 0, MAX_SEED)
    options: dict[str, Any] = {"epochs": epochs, "optimizer": optimizer, "batch_size": batch_size}
    options |= {"callbacks": keras.tree.flatten(callbacks or []), "steps_per_epoch": steps_per_epoch}
    pairs = _pairs(make_model, methods, options | {"criterion": criterion, "verbose": verbose})
    names, read = [method.name for _, method in pairs], (x, y, sample_weight, class_names, resume_path)
    given, data, folder = examples(pairs[0][0], *read, seed=seed, folds=folds, methods=[method for _, method in pairs])
    fold_of = stratified_folds(data.labels, folds, seed)
    trainings = 1 + folds * sum(not method.is_closed_form for _, method in pairs)
    if verbose:
        print(f"{trainings} trainings of up to {epochs} epochs, to compare {', '.join(names)}.")
    bar = Progress(trainings * epochs, verbose)
    pairs = [(dataclasses.replace(trainer, bar=bar), method) for trainer, method in pairs]
    for trainer in {id(trainer.make_model): trainer for trainer, _ in pairs}.values():
        trainer.check(data)
    measure = functools.partial(cross_validate, data=data, fold_of=fold_of, seed=seed, folder=folder)
    with bar, folder.interrupted():
        first = [measure(*pair) for pair in pairs if isinstance(make_model, list | tuple) or _is_basis(pair[1])]
        basis = one_standard_error(first, data.weight)
        check_learned(basis.probabilities, data.labels)
        diagnosis = diagnose(basis.probabilities, data.labels, class_names=data.classes.tolist())
        known = {trial.name: trial for trial in first}
        trials = [known.get(method.name) or measure(trainer, method.given(diagnosis)) for trainer, method in pairs]
        chosen = one_standard_error(trials, data.weight)
        warn_if_weak(chosen.probabilities, data, fold_of)
        trainer = pairs[trials.index(chosen)][0]
        model = trainer.final(chosen.method, data, seed=seed + folds, epochs=chosen.epoch)
    result = Result(
        model,
        trials,
        chosen,
        _reason(trials, chosen, criterion, epochs, data.weight),
        diagnosis,
        basis.probabilities,
        given,
        trainer,
        seed + folds,
        time.perf_counter() - start,
        training_data=data,
    )
    return finished(result, report_path, verbose, x)


def _pairs(make_model: Any, methods: Sequence[Method], options: dict) -> list[tuple[Trainer, Method]]:
    """Returns what is compared, the most cautious first: each method of one network, or each function of a list."""
    if isinstance(make_model, list | tuple):
        refuse_if(
            methods is not METHODS, "methods", "be left out beside a list of functions", f"{len(methods)} of them"
        )
        refuse_if(not make_model, "make_model", "be a list of at least one function", "an empty one")
        for make in make_model:
            rule = "be a list of functions without arguments, each of which returns a new compiled model"
            refuse_if(isinstance(make, keras.Model) or not callable(make), "make_model", rule, kind=make)
        functions = [Unchanged(name) for name in _names(make_model)]
        check_names(functions)
        return [(Trainer(make, **options), method) for make, method in zip(make_model, functions, strict=True)]
    trainer = Trainer(make_model, **options)
    check_names(methods := list(methods))
    plain = [] if any(isinstance(method, EarlyStopping) for method in methods) else [PLAIN]
    possible = [method for method in methods if trainer.function is None or not method.is_closed_form]
    return [(trainer, method) for method in [*plain, *possible]]


def _names(functions: Sequence[Any]) -> list[str]:
    """Returns a different name for each function of a list."""
    names = []
    for function in functions:
        more = [*getattr(function, "args", ()), *getattr(function, "keywords", {}).values()]
        own = getattr(getattr(function, "func", function), "__name__", "model")
        names.append(own + (f"({', '.join(map(str, more))})" if more else ""))
    is_short = max(map(len, names)) <= MAX_NAME and not any("<lambda>" in name for name in names)
    is_clear = is_short and len({name.casefold() for name in names}) == len(names)
    return names if is_clear else [f"model {number}" for number in range(len(names))]


def _is_basis(method: Method) -> bool:
    """Whether a method's predictions may tell the kind of noise: those of the plain training, or in closed form."""
    return isinstance(method, EarlyStopping) or method.is_closed_form


def _reason(trials: Sequence[Trial], chosen: Trial, criterion: str, epochs: int, weight: np.ndarray | None) -> str:
    """Returns the reason of a choice, in a sentence or two."""
    best = best_of(trials, weight)
    kind = "model" if isinstance(chosen.method, Unchanged) else "method"
    gap = difference(chosen.score, best.score, weight)
    unit = f"{100 * gap.mean:+.1f} +- {100 * gap.error:.1f} points"
    text = unit if criterion == "accuracy" else f"{gap.mean:+.3f} +- {gap.error:.3f} of log p"
    reason = f"{chosen.name} predicts the held-out labels best."
    if len(trials) == 1:
        reason = f"{chosen.name}: there is no other {kind}."
    elif chosen is not best:
        reason = (
            f"No {kind} is clearly better on held-out labels, so the most cautious is used: {chosen.name} ({text} "
            f"against {best.name})."
        )
    is_late = not chosen.method.is_closed_form and chosen.epoch >= epochs - WINDOW // 2
    late = " The best epoch is close to the last one; try more epochs or a higher learning rate."
    return reason + (late if is_late else "")
