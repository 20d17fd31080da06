"""The candidates that `choose` compares, and the form of one of your own."""

import re
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_het.label_noise.dawid_skene import dawid_skene
from keras_het.label_noise.discriminant import discriminant, discriminants
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.losses import (
    AnnotatorsLoss,
    EarlyLearningRegularizedCrossentropy,
    ForwardCorrectedCrossentropy,
    with_index,
)
from keras_het.training.labels import largest
from keras_het.training.task import Task

PENALTY = 1e-3  # of T of annotators
KERNELS = 1 << 27  # numbers, folds x folds x D x K: of more, each fold is solved alone
SMOOTHING = 0.3  # of labels in forward correction: without it the loss asks for certainty where T is an estimate


class Candidate:
    """Base class of the methods that `choose` compares: a plain training, from which a subclass differs in something.

    A subclass has a `name`, its `strengths`, each of which is tried, and one or more of the methods below, which get
    the `Task` to train on and one of the strengths. The predictions are those of the head: layers of `tail` act only in
    training.

    Attributes:
        name: title in the table.
        strengths: values that the methods get, one at a time; `(None,)` if there is nothing to choose.
        on_features: boolean, whether it has a `solution`, on features; left out where a function makes the models.
        models_noise: boolean, whether it has a model of the wrong labels, and so need not follow them to predict them:
            a smaller gain is believed.

    Example:
        >>> class Focal(Candidate):
        ...     name, strengths = "focal loss", (1.0, 2.0)
        ...
        ...     def loss(self, task, strength):
        ...         return keras.losses.CategoricalFocalCrossentropy(gamma=strength, from_logits=True)
        ...
        ...     def labels(self, task, strength):
        ...         return keras.utils.to_categorical(task.y, task.units)
        >>> Focal().loss(None, 2.0).gamma
        2.0
    """

    name: str = ""
    strengths: tuple[Any, ...] = (None,)
    on_features: bool = False
    models_noise: bool = False

    def solution(self, task: Task, strength: Any) -> list[np.ndarray]:
        """The weights of a Dense head in closed form, instead of a training: kernel `(D, K)` and bias `(K,)`.

        They are of features as the model scales them. Only where `on_features` is True.

        Args:
            task: argument of `head`.
            strength: argument of `head`.
        """
        raise NotImplementedError

    def solutions(self, task: Task, strength: Any, fold_of: np.ndarray) -> list[list[np.ndarray]] | None:
        """The `solution` for each fold, of the examples of the others, where that takes less time than one by one.

        Args:
            task: all examples.
            strength: one of `strengths`.
            fold_of: fold of each example, `(N,)`.
        Returns:
            kernel and bias for each fold; by default None: each is solved alone.
        """
        return None

    def head(self, task: Task, strength: Any) -> list[keras.layers.Layer]:
        """New layers that make logits or log-probabilities, `(N, K)`, of features `(N, D)`; by default a Dense layer.

        Args:
            task: examples to train on.
            strength: one of `strengths`.
        """
        return [keras.layers.Dense(task.units, "log_softmax", dtype="float32", **task.head_options)]

    def tail(self, task: Task, strength: Any) -> list[keras.layers.Layer]:
        """New layers behind the head in training alone, such as a `NoiseTransition`; by default none.

        Args:
            task: argument of `head`.
            strength: argument of `head`.
        """
        return []

    def loss(self, task: Task, strength: Any) -> Any:
        """The loss, new for each training; by default crossentropy, of labels or of distributions.

        Args:
            task: argument of `head`.
            strength: argument of `head`.
        """
        losses = keras.losses
        made = losses.SparseCategoricalCrossentropy if task.target.ndim == 1 else losses.CategoricalCrossentropy
        return made(from_logits=True)

    def labels(self, task: Task, strength: Any) -> Any:
        """The targets of the loss, `(N,)` or `(N, K)`; by default the labels as they are, or what the votes say.

        Args:
            task: argument of `head`.
            strength: argument of `head`.
        """
        return task.target

    def sample_weight(self, task: Task, strength: Any) -> Any:
        """Weights of the examples, `(N,)`; by default those of the task.

        Args:
            task: argument of `head`.
            strength: argument of `head`.
        """
        return task.sample_weight

    def callbacks(self, task: Task, strength: Any) -> list[keras.callbacks.Callback]:
        """New callbacks of a training; by default none.

        Args:
            task: argument of `head`.
            strength: argument of `head`.
        """
        return []


class EarlyStopping(Candidate):
    """Crossentropy with a Dense head, stopped at the best epoch: the plain training, which others are compared with.

    -log p_y
    """

    name = "early stopping"


class EarlyLearning(Candidate):
    """Early-learning regularisation, for wrong labels that a model learns late: it holds on to earlier predictions.

    The loss is `losses.EarlyLearningRegularizedCrossentropy` (Liu et al. 2020).
    """

    name, strengths = "early-learning regularisation", (3.0,)

    def loss(self, task: Task, strength: Any) -> Any:
        return EarlyLearningRegularizedCrossentropy(len(task.y), task.units, strength, from_logits=True)

    def labels(self, task: Task, strength: Any) -> Any:
        return task.y if task.target.ndim == 1 else largest(task.distribution)

    def sample_weight(self, task: Task, strength: Any) -> Any:
        return with_index(len(task.y))


class ForwardCorrection(Candidate):
    """Forward correction with the transition matrix that the plain training finds, for classes that are swapped.

    -sum_j ((1 - s) y_j + s / K) log sum_i p_i T_ij,    s = .3                                 (Patrini et al. 2017)

    T is the one of `diagnose`, by the plain training; the loss is `losses.ForwardCorrectedCrossentropy`.
    """

    name, models_noise = "forward correction", True

    def loss(self, task: Task, strength: Any) -> Any:
        return ForwardCorrectedCrossentropy(task.transition, from_logits=True)

    def labels(self, task: Task, strength: Any) -> Any:
        return (1.0 - SMOOTHING) * task.distribution + SMOOTHING / task.units


class LinearDiscriminant(Candidate):
    """Linear discriminant analysis of frozen features, in closed form: it hardly follows wrong labels, nor few of them.

    argmax_k m_k' C^-1 x - m_k' C^-1 m_k / 2,    C = (1 - a) S + a (tr S / D) I

    m_k is the mean of the features with label k, S their covariance within the classes. The shrinkage a of .9, .7 and
    .5, and the temperature, are those under which held-out labels are most likely. Classes have equal priors. Of more
    than 4,096 features S is left out. Where a function makes the models, whose features change, this is left out.
    Source: Friedman 1989, "Regularized discriminant analysis", Eq. 18; Lee et al. 2019, "Robust inference via
        generative classifiers for handling noisy labels", section 3.1.
    """

    name, on_features = "linear discriminant analysis", True

    def solution(self, task: Task, strength: Any) -> list[np.ndarray]:
        x, weights = np.asarray(task.x), task.sample_weight
        return list(discriminant(x, task.target, task.units, weights=weights, scale=task.scale)[0])

    def solutions(self, task: Task, strength: Any, fold_of: np.ndarray) -> list[list[np.ndarray]] | None:
        if task.votes is not None or fold_of.max() < 2:  # what votes say depends on the others, and two leave no other
            return None
        if int(fold_of.max() + 1) ** 2 * np.asarray(task.x).shape[1] * task.units > KERNELS:
            return None
        x, weights = np.asarray(task.x), task.sample_weight
        return [list(fitted) for fitted in discriminants(x, task.target, task.units, fold_of, weights, task.scale)]


class LabelSmoothing(Candidate):
    """Crossentropy of labels that are mixed with the uniform distribution, for outliers and few wrong labels.

    -sum_k ((1 - s) y_k + s / K) log p_k                                                      (Szegedy et al. 2016)
    """

    name, strengths = "label smoothing", (0.5,)

    def loss(self, task: Task, strength: Any) -> Any:
        return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=strength)

    def labels(self, task: Task, strength: Any) -> Any:
        return task.distribution


class Heteroscedastic(Candidate):
    """Crossentropy of a `HeteroscedasticDense` head, for labels that name a class which the example looks like.

    -log E[softmax(u / temperature)_y],    u ~ N(mu(h), diag(d(h)^2) + V(h) V(h)')            (Collier et al. 2021)

    It is not in `DEFAULTS`: what it gains over a Dense head with the same temperature is on the page "When it pays".

    Args:
        num_factors: R, columns of V; None for the default of the layer.
        temperatures: strengths, each of which is tried.
    Raises:
        ValueError: for a temperature alone, which is no list.
    """

    name, models_noise = "heteroscedastic head", True

    def __init__(self, num_factors: int | None = None, temperatures: tuple[float, ...] = (5.0,)):
        if isinstance(temperatures, str) or not isinstance(temperatures, Iterable):
            rule = "be a list of temperatures, each of which is tried, such as (1.5, 5.0)"
            raise ValueError(f"`temperatures` must {rule}. Received: temperatures={temperatures!r}")
        self.num_factors, self.strengths = num_factors, tuple(temperatures)

    def head(self, task: Task, strength: Any) -> list[keras.layers.Layer]:
        return [HeteroscedasticDense(task.units, self.num_factors, temperature=strength, **task.head_options)]


class MajorityVote(Candidate):
    """Crossentropy of the fractions of an example's votes, whoever gave them; for labels of several annotators.

    -sum_k q_k log p_k,    q_k the fraction of the example's labels that are k
    """

    name = "fractions of the votes"

    def labels(self, task: Task, strength: Any) -> Any:
        return task.evidence


class AnnotatorTransitions(Candidate):
    """A transition matrix for each annotator, learned with the network; for labels of several annotators.

    -sum_m log sum_i p_i T_m[i, y_m],    T_m at first by Dawid and Skene                 (Rodrigues and Pereira 2018)

    The layer is `layers.NoiseTransition`, and the loss `losses.AnnotatorsLoss`. Verified labels are those of one
    annotator more, whose T begins at the identity.
    """

    name, models_noise = "a T for each annotator", True

    def tail(self, task: Task, strength: Any) -> list[keras.layers.Layer]:
        if task.votes is None:
            rule = "be labels of several annotators, (N, M), for a T for each annotator"
            raise ValueError(f"`y` must {rule}. Received: one label for each example")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `choose` compares; who is named there is not left with one class
            start = dawid_skene(task.votes, task.units).transitions
        start = np.concatenate([start, np.eye(task.units)[None]])  # the last one has verified the labels
        penalty, count = keras.regularizers.L2(PENALTY), len(start)
        return [NoiseTransition(task.units, num_annotators=count, transition=start, regularizer=penalty)]

    def loss(self, task: Task, strength: Any) -> Any:
        return AnnotatorsLoss()

    def labels(self, task: Task, strength: Any) -> Any:
        verified = np.full(len(task.y), -1) if task.verified is None else np.where(task.verified, task.y, -1)
        return np.column_stack([np.where(verified[:, None] < 0, np.asarray(task.votes), -1), verified])


PLAIN = EarlyStopping()
OF_VOTES: tuple[Candidate, ...] = (MajorityVote(), AnnotatorTransitions())
DEFAULTS: tuple[Candidate, ...] = (PLAIN, LinearDiscriminant(), EarlyLearning(), ForwardCorrection(), LabelSmoothing())
"""The candidates that `choose` compares, unless it is given others; `[*DEFAULTS, mine]` adds one."""
# The candidates for a doubt, and the standard errors by which another one must be above them, without and with a model
# of the noise: on features the first, elsewhere the second, which on digits was never behind the plain training.
SAFEST: dict[type[Candidate], tuple[float, float]] = {LinearDiscriminant: (3.0, 2.0), EarlyLearning: (1.0, 1.0)}


def name_of(candidate: Candidate, strength: Any) -> str:
    """The name of a candidate, and the strength if it has several."""
    return f"{candidate.name}, {strength}" if len(candidate.strengths) > 1 else candidate.name


def file_name(name: str) -> str:
    """A name with nothing but letters, digits and signs that file systems take."""
    return re.sub(r"[^\w.]+", "_", name)
