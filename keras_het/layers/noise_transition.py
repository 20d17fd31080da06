"""Label-flip layer: maps log-probabilities of true classes to log-probabilities of noisy labels."""

import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.precision import check_autocast, check_dtype
from keras_het.base.refusal import outside_level, refusal
from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, check_boolean, check_integer, check_last_axis, check_transitions
from keras_het.layers.log_probabilities import check_log_probabilities, nan_unless_log_probabilities
from keras_het.ops.transition import apply_transition, outlier_class, project_rows

INITIAL_SPREAD = 0.01  # fraction of each row of a learned T that is uniform at the start
FREE_SPREAD = 0.5  # without a penalty: the network would memorise all labels before a T near the identity moves
FREE_SCALE = 8.0  # weight over T without a penalty: T must learn slower than the network, or classes are permuted
MIN_MOVED_DISTANCE = 0.01  # total variation
MIN_EXCESS_OVER_DIAGONAL = 0.01
MAX_TRANSITION_BYTES = 1 << 30
MAX_NAMES = 5  # classes that a warning lists
MAX_ANNOTATORS = 1 << 24  # checked before the size of T is computed, because a file could have any number
MIN_ENTRY = 1e-4  # of a learned T, times K: the gradient of an entry is the inverse of a probability


def _is_off_diagonal(transition: np.ndarray) -> np.ndarray:
    """Returns which rows of the mean T, `(K,)`, have a larger entry than the diagonal; T is `(..., K, K)`."""
    mean = transition.reshape(-1, *transition.shape[-2:]).mean(axis=0)
    return mean.max(axis=1) > mean.diagonal() + MIN_EXCESS_OVER_DIAGONAL


@keras.saving.register_keras_serializable("keras_het")
class NoiseTransition(keras.layers.Layer):
    """Label-flip layer that turns a model of the true classes into a model of the noisy labels, 0 to K - 1.

        log p(noisy j | x) = log sum_i p(true i | x) T[i, j]                            (Sukhbaatar et al. 2014, Eq. 2)

    T[i, j] = p(noisy label j | true class i) does not depend on the input; the paper's Q is its transpose. Put the
    layer after log-probabilities, for example after `HeteroscedasticDense` or a Dense layer with
    `activation="log_softmax"`, and train with `from_logits=True`. Like Dropout, it acts only in training: `predict`
    returns the true classes, and you evaluate on clean labels. `val_loss` on noisy validation labels grows once T has
    learned the noise, so stop early by the `val_noisy_nll` of `callbacks.TransitionMonitor`. To evaluate on noisy
    labels, use `explain.noisy_nll`. For their log-probabilities, call `layer(model.predict(x), training=True)`.

    A learned T starts at (I + 1 / K) / 2, and learns with an eighth of the learning rate. From the identity it would
    not move, because the network memorises every label first. With rare classes, train until T stops moving: before
    that, it can explain their labels as flips of frequent classes. With a `regularizer`, such as
    `keras.regularizers.L2`, T starts near the identity, as in the paper, and the penalty spreads its rows.
    `guides/label_flips.py` shows how to choose the strength, and how to notice that T has failed.

    After every step, the rows are projected onto the probability vectors with entries of at least 1e-4 / K. An entry of
    zero would have an unbounded gradient. Read T from `transition`, which is always projected, even if the optimizer
    averages weights (`use_ema=True`). The weight itself is scaled. `set_weights` refuses to mix weights of layers with
    and without a penalty; `load_weights` converts them.

    **The likelihood cannot tell a permuted T.** If the network exchanges two classes and T their rows, the noisy labels
    are as likely, but `predict` is wrong. So a warning names the rows of a learned T whose largest entry is off the
    diagonal. It comes when you read `transition`, save the model, or call `explain.noisy_nll` or
    `explain.confusion_matrices`, and at the end of a training with `TransitionMonitor` or `ReleaseTransition`. Compare
    the predictions with a few correct labels (`labels.verify_accuracy`).

    With `num_annotators`, each annotator m has a separate T (Rodrigues and Pereira 2018; Tanno et al. 2019). The output
    in training is then log p(label of m | x), `(..., M, K)`, for integer labels `(..., M)`, -1 for a missing label. Use
    the loss `losses.AnnotatorsLoss()` and metrics like `metrics.AnnotatorsMetric(...)`; see `guides/annotators.py`.

    Args:
        num_classes: K >= 2, without the outliers; at most 16384 in float32, where T has 1 GiB.
        transition: T, `(K, K)`. It is fixed ("true Q*") with `trainable=False`. A learned T starts at
            0.99 T + 0.01 / K, with K + 1 in place of K if there are outliers. None is the identity if T is fixed or has
            a `regularizer`; otherwise a learned T starts at (I + 1 / K) / 2; but see `outlier_class`. All annotators
            share it, unless it has the shape `(M, K, K)`.
        outlier_class: boolean, whether an additional last class holds examples that belong to no class. T is then
            `(K + 1, K + 1)`, and by default starts near `ops.outlier_class(K, alpha=0.5)` (Eq. 8). Alpha,
            the fraction of outliers that are labelled as outliers, is learned with T. Or fix it with
            `transition=ops.outlier_class(K, alpha), trainable=False`. If no example is labelled as an
            outlier, a learned alpha goes to zero and T becomes singular; the callbacks warn. Use no ridge here: it
            hides this, and spreads the classes. Without a `regularizer`, only the row of the outliers moves far, and T
            does not learn how the other classes are mislabelled.
        trainable: boolean, whether T is learned.
        regularizer: regularizer of T, such as `keras.regularizers.L2`.
        num_annotators: M, from 1 to as many as keep all T within 1 GiB; None is one T without an axis of annotators.
        dtype: "float32", for any global policy, or "float64" on a backend that computes in it.
    Input and output shape: log-probabilities, `(..., K)`, or `(..., K + 1)` with outliers. A row whose probabilities do
        not sum to one, within 10%, gives nan in training. With annotators, the output in training has an axis M before
        the last.
    Raises:
        ValueError: for arguments outside these ranges, inputs of another width, or a layer before this one that does
            not return log-probabilities, such as `Dense(K)` or `Dense(K, "softmax")`.

    Example:
        >>> layer = NoiseTransition(3, transition=[[0.75, 0.25, 0], [0, 1, 0], [0, 0, 1]], trainable=False)
        >>> p = ops.exp(layer(ops.log(ops.array([[0.5, 0.25, 0.25]])), training=True))
        >>> ops.convert_to_numpy(p).round(4).tolist()
        [[0.375, 0.375, 0.25]]
    """

    def __init__(
        self,
        num_classes: int,
        *,
        transition: Any = None,
        outlier_class: bool = False,
        trainable: bool = True,
        regularizer: Any = None,
        num_annotators: int | None = None,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, dtype=check_dtype(dtype), **kwargs)
        self.num_classes = check_integer("num_classes", num_classes, 2, MAX_CLASSES)
        self.outlier_class = check_boolean("outlier_class", outlier_class)
        self.regularizer = keras.regularizers.get(regularizer)
        self.num_annotators = (
            None if num_annotators is None else check_integer("num_annotators", num_annotators, 1, MAX_ANNOTATORS)
        )
        self.size = self.num_classes + self.outlier_class
        self.axes = () if num_annotators is None else (self.num_annotators,)  # of the output, before the classes
        self._check_memory()
        self.initial_transition = None if transition is None else check_transitions(transition)
        shapes = {(self.size,) * 2, (*self.axes, self.size, self.size)}
        if self.initial_transition is not None and self.initial_transition.shape not in shapes:
            rule = " or ".join(map(str, sorted(shapes, key=len)))
            raise refusal("transition", f"have shape {rule}", shape=self.initial_transition)
        self.supports_masking = not self.axes  # a mask has no axis of annotators
        # Made here, because callbacks set it before the first step, which builds some models.
        self.gate = self.add_weight(name="gate", shape=(), initializer="ones", trainable=False, autocast=False)

    def _check_memory(self) -> None:
        """Raises ValueError for sizes that an untrusted file could request, before anything is allocated."""
        size = (8 if self.variable_dtype == "float64" else 4) * self.size**2 * (self.num_annotators or 1)
        if size > MAX_TRANSITION_BYTES:
            annotators = f", num_annotators={self.num_annotators}" if self.axes else ""
            raise ValueError(
                f"T must have at most {MAX_TRANSITION_BYTES >> 30} GiB, but would have {size / 2**30:.5g}. Received: "
                f"num_classes={self.num_classes}, outlier_class={self.outlier_class}{annotators}"
            )

    def build(self, input_shape: Any) -> None:
        if check_last_axis(input_shape) != self.size:
            rule = f"have the size of T, {self.size} (num_classes, and one more with outlier_class=True)"
            raise refusal("The last axis of the input", rule, f"input_shape={input_shape}")
        self.input_spec = keras.layers.InputSpec(min_ndim=1, axes={-1: self.size})
        is_free = not (self.regularizer or self.outlier_class) and self.initial_transition is None
        self._scale = FREE_SCALE if is_free else 1.0
        self.start = start = self._start(FREE_SPREAD if is_free else INITIAL_SPREAD)
        # The last axis lets Keras refuse weights of another scale. Row sums do not reveal the scale: one step of Adam
        # at 0.01 with 1,000 classes changes them from 8 to -1.
        shape = (*start.shape, 1) if is_free else start.shape
        self.kernel = self.add_weight(
            name="transition",
            shape=shape,
            initializer=lambda shape, dtype: ops.reshape(ops.cast(start * self._scale, dtype), shape),
            regularizer=self.regularizer and self._penalty,
            constraint=lambda kernel: ops.reshape(self._scale * self._project(kernel), shape),
            autocast=False,
        )

    @property
    def has_moved(self) -> bool:
        """True if the total variation of any T from its start, the mean over its rows, exceeds 0.01."""
        difference = np.abs(ops.convert_to_numpy(self.compute_transition()) - self.start)
        return bool(np.max(difference.sum(axis=-1).mean(axis=-1)) > 2.0 * MIN_MOVED_DISTANCE)

    def _start(self, spread: float) -> np.ndarray:
        """Returns T at the start; every entry of a learned T is positive."""
        start = self.initial_transition
        if start is None and self.outlier_class:
            start = outlier_class(self.num_classes, 0.5 if self.trainable else 0.0)
        elif start is None:
            start = np.eye(self.size)
        start = np.broadcast_to(start, (*self.axes, self.size, self.size))
        return (1.0 - spread) * start + spread / self.size if self.trainable else start

    def _project(self, kernel: Tensor) -> Tensor:
        """Returns the projected T of the weight; a fixed T keeps its zeros."""
        matrix = ops.reshape(kernel, self.start.shape) / self._scale
        if self.trainable or self.start.min() > 0:
            return project_rows(matrix, MIN_ENTRY / self.size)
        return ops.relu(matrix) / ops.sum(ops.relu(matrix), axis=-1, keepdims=True)

    def _penalty(self, kernel: Tensor) -> Tensor:
        return self.regularizer(self._transition(kernel))

    def _transition(self, kernel: Tensor) -> Tensor:
        """Returns T from the weight, with the gradient that the optimizer needs.

        A learned weight is projected here again, because with `use_ema=True` Keras averages weights before it applies
        their constraint.

        The gradient is scaled by the gate, and centred in every row. It is not divided by the scale of the weight. The
        projection undoes a step that moves all entries of a row equally. In an optimizer that normalises each entry,
        like Adam, that part of the gradient would hide the rest, and T would not move.
        """
        kernel = ops.reshape(kernel, self.start.shape)
        stopped = ops.stop_gradient(kernel)
        step = kernel - stopped  # zero; only its gradient counts
        return self._project(stopped) + self.gate * (step - ops.mean(step, axis=-1, keepdims=True))

    @property
    def transition(self) -> Any:
        """Current T, a tensor of shape `(K, K)` or `(M, K, K)`; see `warn_if_permuted`."""
        self.warn_if_permuted()
        return self.compute_transition()

    def compute_transition(self) -> Any:
        """Returns the current T as `transition` does, without a warning, for use in a training."""
        if not self.built:
            self.build((None, self.size))
        return self._transition(self.kernel)

    def warn_if_permuted(self) -> None:
        """Warns if training moved the largest entry of a row of T off the diagonal; for annotators, of their mean."""
        transition = self.compute_transition()
        try:
            learned = ops.convert_to_numpy(transition)
        except Exception:  # a tensor of a trace has no values
            return
        classes = np.flatnonzero(_is_off_diagonal(learned) & ~_is_off_diagonal(self.start))
        classes = classes[classes < self.num_classes]  # the row of the outliers can be anything
        if len(classes):
            warnings.warn(
                f"T of {self.name!r} has its largest entry off the diagonal for true class "
                f"{', '.join(map(str, classes[:MAX_NAMES]))}{', ...' * (len(classes) > MAX_NAMES)}. Either most labels "
                "of these classes are errors, or the network and T have exchanged classes, and `predict` is wrong. The "
                "likelihood of noisy labels cannot tell. Compare the predictions with a few correct labels "
                "(labels.verify_accuracy), or train again with a `regularizer`, or a `transition` to start from.",
                stacklevel=outside_level(),
            )

    def call(self, inputs: Tensor, training: bool = False) -> Any:
        if not training:
            return inputs
        check_autocast(self.compute_dtype, beside=inputs)
        return nan_unless_log_probabilities(inputs, apply_transition(inputs, self.compute_transition()))

    def compute_output_spec(self, inputs: Tensor, training: bool | None = None) -> Any:
        """Returns the output spec; raises ValueError if the layer before does not return log-probabilities."""
        check_log_probabilities(inputs, self)
        return keras.KerasTensor(self._output_shape(inputs.shape, training), dtype=self.compute_dtype)

    def save_own_variables(self, store: Any) -> None:
        """Saves only T, so that a model saved with a closed gate learns T after it is loaded."""
        store["transition"] = ops.convert_to_numpy(self.transition)

    def load_own_variables(self, store: Any) -> None:
        """Loads T; raises ValueError if the stored weight is no T of this size."""
        stored = np.asarray(store["transition"])
        if stored.shape != self.start.shape or not np.isfinite(stored).all():
            rule = f"be finite and of shape {self.start.shape}"
            received = f"shape {stored.shape}, with {np.sum(~np.isfinite(stored))} not finite"
            raise refusal(f"The stored weight `transition` of {self.name!r}", rule, received)
        check_transitions(stored)
        self.kernel.assign(np.reshape(stored * self._scale, self.kernel.shape))

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return self._output_shape(input_shape)

    def _output_shape(self, input_shape: Any, training: Any = False) -> tuple:
        return (*input_shape[:-1], *(self.axes if training else ()), input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "transition": None if self.initial_transition is None else self.initial_transition.tolist(),
            "outlier_class": self.outlier_class,
            "regularizer": keras.regularizers.serialize(self.regularizer),
            "num_annotators": self.num_annotators,
        }
