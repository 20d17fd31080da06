"""Choice of a training method by noisy labels alone."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.refusal import refuse_if
from keras_het.base.tables import number_of
from keras_het.base.validation import check_integer
from keras_het.labels.data import read, stratified_folds
from keras_het.labels.estimation import classes_by_transition
from keras_het.labels.methods import METHODS, EarlyStopping, Method
from keras_het.labels.result import Result
from keras_het.labels.training.comparison import best_of, check_learned, difference, one_standard_error, warn_if_weak
from keras_het.labels.training.progress import Progress
from keras_het.labels.training.trainer import (
    MAX_SEED,
    PLAIN,
    WINDOW_EPOCHS,
    Trainer,
    Trial,
    Unchanged,
    check_names,
    cross_validate,
    open_folder,
)

MAX_NAME_LETTERS = 60  # longer function names would widen the printed table; they become "model 0" and so on


def choose(
    make_model: Callable[[], keras.Model] | Sequence[Callable[[], keras.Model]],
    x: Any,
    y: Any = None,
    *,
    votes: Any = None,
    epochs: int,
    methods: Sequence[Method] = METHODS,
    criterion: str = "accuracy",
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
) -> Result:
    """Chooses a method and a number of epochs by noisy labels alone, and trains a model with them.

    `choose` trains every method on all folds but one, and predicts the labels of the fold left out. The score s_an is 1
    if method a predicts the label of example n, else 0; with `criterion="loss"` it is log p_a(label). The best epoch
    has the best moving mean of the score. With b the method of the best mean score,

        d_n = s_bn - s_an,    choice: the first a of the list with mean(d) <= std(d) / sqrt(N)

    This is the one-standard-error rule. The list begins with the safest method. If label errors depend on the example,
    held-out labels cannot tell a method that memorises them from one that does not, so the safest is used. Noisy labels
    rank methods as clean labels do if every class keeps most of its labels. All methods average their weights over the
    epochs. The final model is trained on all examples for the best number of epochs. It does not contain layers that
    act only in training, such as a transition matrix.

    Each training calls `keras.utils.set_random_seed` with a seed that depends on `seed` and the fold. `choose` restores
    the global random states at the end, except TensorFlow's seed.

    Args:
        make_model: function without arguments that returns a new model of the K classes, compiled with a loss of
            integer labels. Each method replaces the last layer and the loss, and keeps the optimizer. A list of
            functions compares the models as they are; list the safest first. For features, use `labels.clean`.
        x: examples: arrays, memory maps, a numeric pandas frame, or a data set of batches (x, y) in a fixed order, read
            once. A KerasHub task accepts raw images and strings.
        y: labels, `(N,)`, integers from 0 on, or names; or rows of probabilities, `(N, K)` floats. None for a data set,
            or for votes.
        votes: labels of several annotators instead of `y`, `(N, M)`, as `aggregate` reads them. The models are trained
            on its probabilities. Every example needs a vote.
        epochs: maximum number of epochs of each training.
        methods: methods to compare, the safest first. `EarlyStopping` is added as the first if you leave it out.
        criterion: "accuracy" or "loss", -log p(label). Use "loss" only for methods that do not correct the labels.
        folds: number of folds, at least 2.
        sample_weight: weights of the examples in training and comparison, `(N,)`; None for equal ones.
        class_names: names of the K classes, for integer labels; for labels that are names, their order.
        batch_size: size of the batches of training and prediction.
        resume_path: folder that stores each finished training. The same call resumes from it and gives the same result,
            to the bit. It refuses other examples (it compares 1,000), labels, settings and methods, and functions whose
            models have other layers, losses or optimizers. It does not compare the code of your functions and classes,
            nor callbacks: use a new folder if you change them.
        report_path: folder for the files of `report`; None for no report.
        seed: seed of the folds and the trainings.
        verbose: 1 prints the plan, a progress bar and the result; 2 adds the lines of `fit`; 0 prints nothing.
        callbacks: callbacks that all trainings share.
        steps_per_epoch: argument of `fit`.
    Returns:
        `Result`; print it.
    Raises:
        ValueError: for labels or arguments out of range, a model without a head, or models that learned nothing: they
            are no better than the majority class, and give held-out labels no more probability than shuffled labels.
    Warns: if the model is not clearly better than the majority class, if a data set shuffles itself, or if the plain
        training is clearly worse than logistic regression on the same features.
    Source: Breiman, Friedman, Olshen and Stone 1984, "Classification and regression trees", section 3.4.3, for the
        rule. Each method names its source.

    Example:
        >>> x, y = np.eye(3, dtype="float32").repeat(20, axis=0), np.arange(3).repeat(20)
        >>> def make_model():
        ...     dense = keras.layers.Dense
        ...     model = keras.Sequential([keras.Input((3,)), dense(32, "relu"), dense(3, "softmax")])
        ...     model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
        ...     return model
        >>> result = choose(make_model, x, y, epochs=20, folds=2, verbose=0)
        >>> result.model.predict(x[::20], verbose=0).argmax(-1).tolist()
        [0, 1, 2]
    """
    start = time.perf_counter()
    check_integer("folds", folds, 2)
    check_integer("seed", seed, 0, MAX_SEED)
    options: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size}
    options |= {"callbacks": keras.tree.flatten(callbacks or []), "steps_per_epoch": steps_per_epoch}
    pairs = _pairs(make_model, methods, options | {"criterion": criterion, "verbose": verbose})
    source = read(x, y, sample_weight, class_names, votes)
    names, used = [method.name for _, method in pairs], [method for _, method in pairs]
    makers = [trainer.make_model for trainer, _ in pairs]
    folder = open_folder(resume_path, pairs[0][0], source, makers, seed=seed, folds=folds, methods=used)
    fold_of = stratified_folds(source.labels, folds, seed, source.classes)
    trainings = 1 + folds * len(pairs)
    if verbose:
        print(
            f"Comparing {', '.join(names)}: {number_of(trainings, 'training')} of up to {number_of(epochs, 'epoch')}."
        )
    bar = Progress(trainings * epochs, verbose)
    pairs = [(dataclasses.replace(trainer, bar=bar), method) for trainer, method in pairs]
    pairs[0][0].check(source)
    validate = functools.partial(cross_validate, data=source, fold_of=fold_of, seed=seed, folder=folder)
    with bar, folder.interruptible():
        is_list = isinstance(make_model, list | tuple)
        plain = [validate(*pair) for pair in pairs if is_list or isinstance(pair[1], EarlyStopping)]
        basis = one_standard_error(plain, source.weight)
        check_learned(basis.probabilities, source.labels)
        warn_if_weak(basis.probabilities, source, fold_of)
        transition, _ = classes_by_transition(source.labels, basis.probabilities)
        finished = {trial.name: trial for trial in plain}
        trials = [finished.get(method.name) or validate(trainer, method.adapt(transition)) for trainer, method in pairs]
        chosen = one_standard_error(trials, source.weight)
        trainer = pairs[trials.index(chosen)][0]
        model = trainer.final(chosen.method, source, seed=seed + folds, epochs=chosen.epoch)
    result = Result(
        data=source,
        probabilities=basis.probabilities,
        model=model,
        trials=trials,
        chosen=chosen,
        reason=_reason(trials, chosen, criterion, epochs, source.weight),
        trainer=trainer,
        seed=seed + folds,
        seconds=time.perf_counter() - start,
    )
    return result.finish(report_path, verbose, x)


def _pairs(make_model: Any, methods: Sequence[Method], options: dict) -> list[tuple[Trainer, Method]]:
    """Returns the trainers and methods to compare, the safest first, for one network or a list of functions."""
    if isinstance(make_model, list | tuple):
        refuse_if(methods is not METHODS, "methods", "be left out for a list of functions", f"{len(methods)} methods")
        refuse_if(not make_model, "make_model", "be a list of at least one function", "an empty list")
        for make in make_model:
            rule = "be a list of functions without arguments that return new compiled models"
            refuse_if(isinstance(make, keras.Model) or not callable(make), "make_model", rule, kind=make)
        functions = [Unchanged(name) for name in _names(make_model)]
        check_names(functions)
        return [(Trainer(make, **options), method) for make, method in zip(make_model, functions, strict=True)]
    rule = "be a function that returns a new compiled model, or a list of such functions; on features use labels.clean"
    is_wrong = isinstance(make_model, keras.Model) or not callable(make_model)
    refuse_if(is_wrong, "make_model", rule, "None" if make_model is None else f"a {type(make_model).__name__}")
    trainer = Trainer(make_model, **options)
    check_names(methods)
    plain = [] if any(isinstance(method, EarlyStopping) for method in methods) else [PLAIN]
    return [(trainer, method) for method in [*plain, *methods]]


def _names(functions: Sequence[Any]) -> list[str]:
    """Returns a unique name for each function: its name with the arguments of a partial, or "model 0" and so on."""
    names = []
    for function in functions:
        arguments = [*getattr(function, "args", ()), *getattr(function, "keywords", {}).values()]
        name = getattr(getattr(function, "func", function), "__name__", "model")
        names.append(name + (f"({', '.join(map(str, arguments))})" if arguments else ""))
    is_short = max(map(len, names)) <= MAX_NAME_LETTERS and not any("<lambda>" in name for name in names)
    is_unique = len({name.casefold() for name in names}) == len(names)
    return names if is_short and is_unique else [f"model {number}" for number in range(len(names))]


def _reason(trials: Sequence[Trial], chosen: Trial, criterion: str, epochs: int, weight: np.ndarray | None) -> str:
    """Returns the reason for a choice, in a sentence or two."""
    best = best_of(trials, weight)
    kind = "model" if isinstance(chosen.method, Unchanged) else "method"
    gap = difference(chosen.score, best.score, weight)
    unit = f"{100 * gap.mean:+.1f} +- {100 * gap.error:.1f} points"
    text = unit if criterion == "accuracy" else f"{gap.mean:+.3f} +- {gap.error:.3f} of log p"
    reason = f"{chosen.name} predicts the held-out labels best."
    if len(trials) == 1:
        reason = f"{chosen.name} is used: there is no other {kind}."
    elif chosen is not best:
        safest = f"{chosen.name} ({text} against {best.name})"
        reason = f"No {kind} is clearly better on held-out labels, so the safest is used: {safest}."
    if chosen.epoch < epochs - WINDOW_EPOCHS // 2:
        return reason
    return f"{reason} The best epoch is close to the last one. Try more epochs or a higher learning rate."
