"""Callbacks for models with a `NoiseTransition`: release T, log T."""

import math
import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import check_rereadable, is_data_set
from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_integer, check_transitions
from keras_het.layers import NoiseTransition
from keras_het.ops.transition import total_variation
from keras_het.reading.check import collect_warnings
from keras_het.reading.clean_and_noisy import TransitionPredictor

MIN_OUTLIER_FRACTION = 0.01  # below it, T has learned that no outlier is labelled


class TransitionCallback(keras.callbacks.Callback):
    """Base class: checks the model, and warns of a nan loss, a permuted T, and outliers that were not learned."""

    @property
    def layers(self) -> list[NoiseTransition]:
        """Every `NoiseTransition` of the model, at least one."""
        layers = layers_of(self.model, NoiseTransition)
        if not layers:
            raise refusal("The model", "have a NoiseTransition layer", f"model={self.model.name!r}, which has none")
        return layers

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.model.compiled:
            collect_warnings(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if epoch == 0 and math.isnan((logs or {}).get("loss", 0.0)):
            name = self.layers[0].name
            warnings.warn(
                f"The loss is nan after the first epoch. Training has diverged, a label is no class, or the inputs of "
                f"{name!r} are not log-probabilities. keras_het.check(model, x, y) finds such labels. Put {name!r} "
                "directly after a head or Dense(K, 'log_softmax').",
                stacklevel=2,
            )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        for layer in self.layers:
            layer.warn_if_permuted()
            fraction = ops.convert_to_numpy(layer.compute_transition())[..., -1, -1].min()
            if layer.outlier_class and layer.trainable_weights and fraction < MIN_OUTLIER_FRACTION:
                warnings.warn(
                    f"{layer.name!r} has learned that only a fraction of {fraction:.2g} of the outliers is labelled as "
                    f"outliers. It cannot learn this fraction without examples of label {layer.num_classes}. Add some, "
                    "or fix the fraction alpha with transition=keras_het.ops.outlier_class(num_classes, "
                    "alpha), trainable=False. Use alpha=0 if no outlier is labelled.",
                    stacklevel=2,
                )


class ReleaseTransition(TransitionCallback):
    """Holds a learned T at its start while the base model learns, then releases it.

    This is the training sequence of Sukhbaatar et al. 2014, Fig. 1b. The callback sets the layer's `gate`, a weight
    that scales the gradient of T, to 0 and then to 1. The gate is open at the end of every epoch, so callbacks that
    save or restore weights never keep it closed. Two things move T although the gate is closed. The momentum of an
    earlier `fit`: compile again. Weight decay: call `optimizer.exclude_from_weight_decay(var_names=["transition"])`.

    A run that `BackupAndRestore` resumes equals an uninterrupted run.

    Args:
        after: number of epochs to wait, at least 0.
    Raises:
        ValueError: for another number, or a model without `NoiseTransition`.
    Warns: if training ends before T is released.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(3, "log_softmax"), NoiseTransition(3, regularizer="l2")])
        >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> release = ReleaseTransition(after=2)
        >>> history = model.fit(np.ones((8, 2)), np.arange(8) % 3, epochs=3, verbose=0, callbacks=[release])
        >>> float(ops.convert_to_numpy(model.layers[-1].gate))
        1.0
    """

    def __init__(self, after: int):
        super().__init__()
        self.after = check_integer("after", after, 0)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self.is_released = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.is_released = epoch >= self.after
        self._set_gates(self.is_released)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        self._set_gates(True)  # else weights that are saved now would keep T fixed when they are restored

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._set_gates(True)  # else a later `fit` without this callback would not learn T
        if not self.is_released:
            warnings.warn(
                f"T was never released: training ended before after={self.after}. Train longer, or lower `after`.",
                stacklevel=2,
            )
        super().on_train_end(logs)

    def _set_gates(self, is_open: bool) -> None:
        for layer in self.layers:
            layer.gate.assign(float(is_open))


class TransitionMonitor(TransitionCallback):
    """Logs statistics of T after every epoch, for History, CSVLogger and TensorBoard.

    * `<layer>_trace`: the sum of T_ii.
    * `<layer>_condition`: the condition number.
    * `<layer>_distance`: the total variation distance to a reference, mean over the rows.
    * `<layer>_outlier_fraction`, with an outlier class: the fraction of outliers that is labelled as outliers.
    * `val_noisy_nll`, with `validation_data`: the mean of -log p(noisy y | x).

    With several annotators, the statistics of T are means over annotators. Use `val_noisy_nll` for early stopping,
    because `val_loss` on noisy labels grows while T learns the noise: `callbacks=[TransitionMonitor(validation_data=(x,
    y)), EarlyStopping("val_noisy_nll", mode="min")]`. Put the monitor before the callbacks that use its logs.

    Args:
        reference: row-stochastic, `(K, K)` or `(M, K, K)`, for example the true T; None is the identity.
        validation_data: `(x, y)`, or a data set of batches (x, y) that can be read again. Noisy labels are integers in
            [0, K), `(N,)`, or `(N, M)` with -1 for missing.
    Raises:
        ValueError: for a reference that is not row-stochastic or has another size, or a model without
            `NoiseTransition`. With validation data also for labels out of range, or a model that does not end in the
            layer.
    Warns: once, if `val_loss` grows while the training loss falls, T has moved and there is no `validation_data`.

    Example:
        >>> flips = NoiseTransition(3, regularizer="l2", name="flips")
        >>> model = keras.Sequential([keras.layers.Dense(3, "log_softmax"), flips])
        >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> x, y = np.ones((8, 2)), np.arange(8) % 3
        >>> history = model.fit(x, y, verbose=0, callbacks=[TransitionMonitor(validation_data=(x, y))])
        >>> sorted(history.history)
        ['flips_condition', 'flips_distance', 'flips_trace', 'loss', 'val_noisy_nll']
    """

    def __init__(self, reference: Any = None, validation_data: Any = None):
        super().__init__()
        self.reference = None if reference is None else check_transitions(reference, "reference")
        self.validation_data = validation_data
        if validation_data is None:
            return
        check_rereadable("validation_data", validation_data)
        if is_data_set(validation_data):
            self.validation_data = (validation_data, None)
        elif not isinstance(validation_data, list | tuple) or len(validation_data) != 2:
            parts = f" of {len(validation_data)}" if isinstance(validation_data, list | tuple) else ""
            rule = "be (x, y) or a data set, without weights"
            raise refusal("validation_data", rule, f"a {type(validation_data).__name__}{parts}")

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self.best, self.last, self.has_warned = math.inf, math.inf, False
        self.predictor: TransitionPredictor | None = None  # kept for all epochs: a new one can compile a model again
        for layer in self.layers:
            shape = (layer.size,) * 2
            if self.reference is not None and self.reference.shape not in (shape, (*layer.axes, *shape)):
                raise refusal("reference", f"have shape {shape}", shape=self.reference)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        logs = {} if logs is None else logs
        for layer in self.layers:
            for name, values in self._measures(layer).items():
                logs[f"{layer.name}_{name}"] = float(np.mean(values))
        if self.validation_data is not None:
            self.predictor = self.predictor or TransitionPredictor(self.model)
            x, y = self.validation_data
            logs["val_noisy_nll"] = self.predictor.noisy_nll(x, y, name="validation_data")
        elif "val_loss" in logs:
            self._warn_about_val_loss(logs["loss"], logs["val_loss"])

    def _measures(self, layer: NoiseTransition) -> dict[str, Any]:
        transition = ops.convert_to_numpy(layer.compute_transition()).astype("float64")
        reference = np.eye(layer.size) if self.reference is None else self.reference
        matrices = np.broadcast_arrays(transition, reference)
        measures = {
            "trace": np.trace(transition, axis1=-2, axis2=-1),
            # The singular values of a T of nan do not converge.
            "condition": np.linalg.cond(transition) if np.isfinite(transition).all() else np.nan,
            "distance": list(map(total_variation, *(x.reshape(-1, layer.size, layer.size) for x in matrices))),
        }
        if layer.outlier_class:
            measures["outlier_fraction"] = transition[..., -1, -1]
        return measures

    def _warn_about_val_loss(self, loss: float, val_loss: float) -> None:
        learned = [layer for layer in self.layers if layer.has_moved]
        if learned and val_loss > self.best and loss < self.last and not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"`val_loss` grew to {val_loss:.4g} while the training loss fell. If your validation labels are clean, "
                f"the model overfits. If they are noisy, `val_loss` grows because {learned[0].name!r} is off at "
                "inference: stop early with TransitionMonitor(validation_data=(x, y)) and "
                'EarlyStopping("val_noisy_nll", mode="min") instead.',
                stacklevel=2,
            )
        self.best, self.last = min(self.best, val_loss), loss
