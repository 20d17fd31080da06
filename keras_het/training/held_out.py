"""How well a model predicts held-out labels, which may be noisy: no clean label is needed."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops
from scipy.special import softmax

from keras_het.base.batches import Arrays, count_examples, examples_and_labels, labelled_batches, select_rows
from keras_het.base.internals import layers_of
from keras_het.base.validation import check_choice
from keras_het.layers import NoiseTransition
from keras_het.ops.label_vectors import MISSING
from keras_het.reading.check import leaves
from keras_het.reading.clean_and_noisy import CleanAndNoisy
from keras_het.reading.ending import endings
from keras_het.reading.matching import activation_for, ignored_by, labels_for, loss_of, remade
from keras_het.training.compare import check_learned, class_means_of


class HeldOut:
    """Scores a model by a criterion over held-out labels.

    Args:
        data: `(x, y)`, or a data set of batches (x, y) that can be read more than once.
        criterion: "accuracy", "loss", or a function `(labels, predictions)`: see `tune`.
        mode: "min", "max" or "auto".
        batch_size: size of the batches of the predictions from arrays.
    Raises:
        ValueError: for arguments out of range.
    """

    def __init__(self, data: Any, criterion: str | Callable[[Any, Any], Any], mode: str = "auto", batch_size: int = 32):
        self._x, self._y = examples_and_labels("validation_data", data)
        if self._y is not None and not len(self._y):
            raise ValueError("`validation_data` must have at least one example. Received: none")
        if self._y is not None and count_examples(self._x) != len(self._y):
            rule = "have a label for each example"
            raise ValueError(
                f"`validation_data` must {rule}. Received: {len(self._y)} labels of {count_examples(self._x)}"
            )
        known = criterion in ("accuracy", "loss") if isinstance(criterion, str) else callable(criterion)
        if not known or isinstance(criterion, type | keras.metrics.Metric):
            rule = 'be "loss", "accuracy", or a function (labels, predictions)'
            raise ValueError(f"`criterion` must {rule}. Received: criterion={criterion!r}")
        self.name = (
            criterion if isinstance(criterion, str) else getattr(criterion, "__name__", type(criterion).__name__)
        )
        largest = (
            "accuracy" in self.name if check_choice("mode", mode, ("auto", "min", "max")) == "auto" else mode == "max"
        )
        self._criterion, self._sign, self._batch_size = criterion, 1.0 if largest else -1.0, batch_size

    def better(self, score: float, other: float) -> bool:
        """Whether a score is better than another."""
        return self._sign * score > self._sign * other

    def __call__(self, model: keras.Model) -> float:
        """The mean of the criterion over the labels that count; raises as `scores`."""
        return self.scores(model)[0]

    def scores(self, model: keras.Model) -> tuple[float, np.ndarray | None]:
        """The mean of the criterion over the labels that count, and the fraction of labels that are right, by example.

        The latter is of shape `(N,)`, and None where the classes are not exclusive. Both are of one prediction.

        Raises:
            ValueError: for no example, labels out of range, a model of several outputs, or one that does not fit the
                criterion.
        """
        measure, losses = self._measure(model), _losses(model)
        ignored = ignored_by(losses[0]) if len(losses) == 1 else None
        exclusive = len(losses) == 1 and activation_for(losses[0]) == "softmax"
        total, count, right = 0.0, 0, []
        for labels, predictions, distributions in self._batches(model, ignored):
            if exclusive:
                _check_range(labels, predictions, ignored)
            if exclusive and _name_classes(labels, predictions):
                right.append(_share_right(labels, predictions, ignored))
            if distributions is None:
                labels, predictions = _that_count(labels, predictions, ignored)
            else:
                labels, predictions = _examples_that_count(labels, distributions, losses[0])
            if len(labels):
                total += len(labels) * float(np.mean(ops.convert_to_numpy(measure(labels, predictions))))
                count += len(labels)
        if not count:
            raise ValueError("`validation_data` must have at least one label that counts. Received: none")
        return total / count, np.concatenate(right) if right else None

    def check_learned(self, model: keras.Model, train: Any) -> None:
        """Refuses a model that has learned nothing, and warns of a weak one, as `compare.check_learned` does.

        Of models that predict one of several classes for each example; others are not judged.

        Args:
            model: the model.
            train: examples `x` and labels `y` that it was trained on, for the class means of features.
        """
        losses = _losses(model)
        if len(losses) != 1 or activation_for(losses[0]) != "softmax":
            return
        ignored = ignored_by(losses[0])
        parts = [_that_count(*part[:2], ignored) for part in self._batches(model, ignored)]
        outputs = np.concatenate([predictions for _, predictions in parts]).astype("float32")
        labels = np.concatenate([_as_integers(*part) for part in parts])
        if outputs.ndim != 2 or labels.shape != outputs.shape[:1] or not all(_name_classes(*part) for part in parts):
            return
        p = softmax(outputs, axis=1) if getattr(loss_of(losses[0]), "from_logits", False) else outputs
        own = Arrays(self._x, self._y, None)
        are_classes = all(getattr(y, "ndim", 0) == 1 and y.dtype.kind in "iu" for y in (train.y, own.y))
        check_learned(p, labels, class_means_of(train, own) if are_classes and ignored is None else None)

    def _batches(self, model: keras.Model, ignored: int | None) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
        """Yields labels, what the model predicts of them, and the distributions where the criterion takes those."""
        if layers_of(model, NoiseTransition):
            x, y = self._x, self._y
            if ignored is not None and y is not None and np.ndim(y) == 1:  # T has no row for such a label
                x, y = select_rows(x, np.flatnonzero(y != ignored)), y[y != ignored]
            for batch in CleanAndNoisy(model).batches(x, y, self._batch_size, "validation_data"):
                yield batch.labels, batch.noisy.astype("float32"), None
            return
        takes_distributions = self._criterion == "loss" and _trains_on_distributions(model)
        for x, labels in labelled_batches(self._x, self._y, self._batch_size, "validation_data"):
            predictions = model.predict_on_batch(x)
            if not hasattr(predictions, "shape"):
                raise ValueError(f"`make_model` must make models of one output. Received: {len(predictions)} outputs")
            distributions = keras.Model.predict_on_batch(model, x) if takes_distributions else None
            yield _in_a_column(labels, predictions), ops.convert_to_numpy(predictions), distributions

    def _measure(self, model: keras.Model) -> Callable[[Any, Any], Any]:
        if not isinstance(self._criterion, str):
            return self._criterion
        losses = _losses(model)
        if len(losses) != 1:
            raise ValueError(
                f"`make_model` must make models that are compiled with one loss. Received: {len(losses)} losses"
            )
        loss = loss_of(losses[0])
        if self._criterion == "loss":
            return _mean_of(loss)
        known = next(
            (ending if ending.is_head else None for ending in endings(model)), None
        )  # None if no head is known
        if (known.link if known else activation_for(losses[0])) == "sigmoid":
            logits = known.returns == "logits" if known else getattr(loss, "from_logits", False)
            return lambda labels, predictions: (predictions > (0.0 if logits else 0.5)) == (labels > 0.5)
        return _is_right


def _losses(model: keras.Model) -> list[Any]:
    """The losses that a model was compiled with, in order."""
    return list(leaves(model.loss)) if model.compiled else []


def _check_range(labels: np.ndarray, predictions: np.ndarray, ignored: int | None) -> None:
    """Refuses integer labels that are no class: JAX takes them for other classes without an error."""
    units = predictions.shape[-1]
    if labels.shape not in (predictions.shape[:-1], (*predictions.shape[:-1], 1)):
        return
    wrong = labels[((labels < 0) | (labels >= units)) & (labels != ignored)]
    if len(wrong):
        raise ValueError(
            f"`validation_data` must have labels in [0, {units - 1}], the classes of the model. Received: {wrong[0]}"
        )


def _that_count(labels: np.ndarray, predictions: np.ndarray, ignored: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The labels, `(M,)`, and predictions, `(M, K)`, of all but ignored labels; all as they are if none is ignored."""
    if ignored is None or labels.shape not in (predictions.shape[:-1], (*predictions.shape[:-1], 1)):
        return labels, predictions
    labels = labels.reshape(predictions.shape[:-1])
    return labels[labels != ignored], predictions[labels != ignored]


def _trains_on_distributions(model: keras.Model) -> bool:
    """Whether the loss gets a distribution, and the user what the head makes of it, as in a `DistributionModel`."""
    return any(ending.of_distribution for ending in endings(model))


def _examples_that_count(labels: np.ndarray, distributions: Any, loss: Any) -> tuple[np.ndarray, np.ndarray]:
    """The labels and distributions of all examples but those of which the loss leaves out every label."""
    outputs = ops.convert_to_numpy(distributions)
    missing = MISSING if labels_for(loss, 0) == "each or missing" else ignored_by(loss)
    counts = np.any(labels.reshape(len(labels), -1) != missing, axis=1)
    return labels[counts], outputs[counts]


class _Function(keras.losses.Loss):
    """A user's own loss function, called as Keras calls it."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, y_true, y_pred):
        """The function."""
        return self.function(y_true, y_pred)


def _mean_of(loss: Any) -> Any:
    """A loss as a mean over the examples."""
    if not isinstance(loss, keras.losses.Loss):
        return _Function(loss)
    return remade(loss, reduction="sum_over_batch_size") if loss.reduction == "sum" else loss


def _in_a_column(labels: np.ndarray, predictions: Any) -> np.ndarray:
    """Labels `(N,)` as a column where predictions are `(N, 1)`, as in Keras."""
    return labels[..., None] if tuple(predictions.shape) == (*labels.shape, 1) else labels


def _name_classes(labels: np.ndarray, predictions: np.ndarray) -> bool:
    """Whether labels, integers or vectors, name one of several classes each."""
    vectors = labels.shape == predictions.shape
    return predictions.shape[-1] > 1 and not (vectors and np.any(labels.sum(-1).round(3) != 1))


def _is_right(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Whether the most probable class is the label's, an integer or a vector."""
    if not _name_classes(labels, predictions):
        rule = 'be a function, or "loss", where the loss of the model does not tell what it predicts'
        raise ValueError(f"`criterion` must {rule}. Received: 'accuracy' of outputs of shape {predictions.shape}")
    return predictions.argmax(-1) == _as_integers(labels, predictions)


def _as_integers(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """The classes that labels name, integers or vectors, in the shape of the predictions' examples."""
    if labels.shape == predictions.shape:
        return labels.argmax(-1)
    return labels.reshape(predictions.shape[:-1]).astype(int)


def _share_right(labels: np.ndarray, predictions: np.ndarray, ignored: int | None) -> np.ndarray:
    """The share of the labels of each example that are right, `(N,)`; an ignored label is right nowhere."""
    right = _is_right(labels, predictions)
    if ignored is not None and labels.shape != predictions.shape:
        right &= labels.reshape(right.shape) != ignored
    return right.reshape(len(right), -1).mean(1)


class KeepBest(keras.callbacks.Callback):
    """Scores every epoch, writes the score into the logs, and keeps the weights of the best one.

    Of the later epochs it keeps the most accurate one of those that are clearly more accurate.

    Args:
        held_out: the data to score by.
    """

    def __init__(self, held_out: HeldOut):
        super().__init__()
        self.held_out, self.score, self.epoch, self.weights = held_out, math.nan, 0, None
        self.right: Any = None
        self.later: tuple[int, float] | None = None  # the epoch, and its accuracy

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls it."""
        score, right = self.held_out.scores(self.model)  # type: float, Any
        if logs is not None:
            logs[f"val_{self.held_out.name}"] = score
        if np.isfinite(score) and (self.weights is None or self.held_out.better(score, self.score)):
            self.score, self.epoch, self.weights = score, epoch + 1, self.model.get_weights()
            self.right, self.later = right, None
        elif clearly_larger(right, self.right) and (self.later is None or right.mean() > self.later[1]):
            self.later = epoch + 1, right.mean()

    def missed(self) -> str:
        """A sentence if a later epoch than the best one is clearly more accurate, else an empty text."""
        if self.later is None:
            return ""
        epoch, accuracy = self.later
        return (
            f"Epoch {self.epoch}, the best by {self.held_out.name}, has an accuracy of {self.right.mean():.3f} on the "
            f"validation labels, and epoch {epoch} {accuracy:.3f}, more by over two standard errors"
        )


def clearly_larger(values: Any, others: Any) -> bool:
    """Whether the mean of values is larger than that of others of the same examples by two paired standard errors."""
    if values is None or others is None or len(values) < 2:
        return False
    above = values - others
    return bool(above.mean() > 2 * above.std(ddof=1) / math.sqrt(len(above)))


def noisy_nll(model: Any, x: Any, y: Any = None, batch_size: int = 128) -> float:
    """Mean of -log p(noisy y | x), the negative log-likelihood, under a model that ends in a `NoiseTransition`.

    A value far lower on training labels than on held-out labels says that the base model still learns labels by heart:
    there is too little data for T, or the penalty is too weak.

    Args:
        model: a model that ends in the layer.
        x: examples: arrays, or a data set of batches (x, y) as for `fit`.
        y: their noisy labels, integers in [0, K), `(N,)`, or of several annotators `(N, M)`, -1 where one is missing;
            None for a data set.
        batch_size: size of the batches of the predictions from arrays.
    Returns:
        a float.
    Raises:
        ValueError: for labels out of range, or a model that does not end in the layer.
    Source: Sukhbaatar et al. 2014, Eq. 3, of held-out labels.

    Example:
        >>> import keras
        >>> from keras_het.layers import NoiseTransition
        >>> flips = NoiseTransition(2, transition=[[0.5, 0.5], [0.0, 1.0]], trainable=False)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax"), flips])
        >>> round(noisy_nll(model, np.array([[30.0, -30.0]]), [1]), 4)  # -log(0.5)
        0.6931
    """
    return CleanAndNoisy(model).noisy_nll(x, y, batch_size)
