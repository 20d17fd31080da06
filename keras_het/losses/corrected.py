"""The crossentropy that takes T, the probabilities of label flips."""

from typing import Any

import keras

from keras_het.base.refusal import refusal
from keras_het.base.validation import check_one_transition
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops.log_space import weighted_logs
from keras_het.ops.transition import apply_transition


@keras.saving.register_keras_serializable("keras_het")
class ForwardCorrectedCrossentropy(Crossentropy):
    """Crossentropy of the noisy labels under the noisy prediction; the best model is the same as for clean labels.

        -log sum_i p(true i) T[i, y]        (Patrini et al. 2017, Theorem 2)

    It equals crossentropy behind a `NoiseTransition` with a fixed T, but leaves the model unchanged.

    Args:
        transition: T, `(K, K)`, T[i, j] = p(noisy label j | true class i).
        from_logits: boolean, whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: argument of any Keras loss.
        dtype: argument of any Keras loss.
    Raises:
        ValueError: if T is not square and row-stochastic, or of another size than y_pred.

    Example:
        >>> loss = ForwardCorrectedCrossentropy([[0.75, 0.25], [0.0, 1.0]])
        >>> round(float(loss([1], [[0.5, 0.5]])), 4)  # -log(0.5 * 0.25 + 0.5)
        0.47
    """

    def __init__(
        self,
        transition: Any,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "forward_corrected_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.transition = check_one_transition(transition)

    def log_probs(self, y_pred: Any) -> Any:
        """See `Crossentropy`. Raises a ValueError if T has another size."""
        if y_pred.shape[-1] != len(self.transition):
            raise refusal("transition", f"have shape {(y_pred.shape[-1],) * 2}", shape=self.transition)
        return super().log_probs(y_pred)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        return -weighted_logs(targets, apply_transition(log_probs, self.transition))

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "transition": self.transition.tolist()}
