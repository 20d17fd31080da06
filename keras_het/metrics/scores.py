"""Proper scores, the likelihood and the Brier score with its parts, and calibration errors."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.validation import check_integer
from keras_het.metrics.metric import MAX_BINS, Examples, ProbabilityMetric, bin_of, confidence_and_success, sum_by


@keras.saving.register_keras_serializable("keras_het")
class ExpectedCalibrationError(ProbabilityMetric):
    """The mean distance of the confidence from the fraction of right predictions, over bins of equal width.

    Confidence is the probability of the predicted class.

        sum over bins b of |sum over i in b of 1[y_i = argmax p_i] - max p_i| / N

    Args:
        bins: the number of bins, 1 to 2^16.
        name: the name of the metric.
        kwargs: arguments of `ProbabilityMetric` but `multi_label`, such as `from_logits=True` for the outputs of a
            head.
    Source: Naeini, Cooper and Hauskrecht 2015; Guo, Pleiss, Sun and Weinberger 2017, Eq. 3.

    Example:
        >>> metric = ExpectedCalibrationError()
        >>> round(float(metric([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]])), 4)  # (.1 + |.2 - .8|) / 3
        0.2333
    """

    def __init__(self, bins: int = 15, name: str | None = "ece", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        check_exclusive(self)
        self.bins = check_integer("bins", bins, 1, MAX_BINS)
        self._weight, self._gaps = self.sum_of("weight"), self.sum_of("gaps", (self.bins,))

    def add(self, examples: Examples) -> None:
        confidence, success = confidence_and_success(examples)
        gaps = ops.where(examples.weights == 0, 0.0, examples.weights * (success - confidence))
        self._gaps.add(sum_by(bin_of(self.bins, confidence), gaps, self.bins))
        self._weight.add(ops.sum(examples.weights))

    def result(self) -> Any:
        """The error, in [0, 1]."""
        return ops.divide_no_nan(ops.sum(ops.abs(self._gaps.value())), self._weight.value())

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}


def check_exclusive(metric: ProbabilityMetric) -> None:
    """Raises a ValueError for labels that are not exclusive: none of them is the predicted one."""
    if metric.multi_label:
        raise refusal("multi_label", f"be False for {type(metric).__name__}, which needs one predicted class", "True")


@keras.saving.register_keras_serializable("keras_het")
class NegativeLogLikelihood(ProbabilityMetric):
    """The mean of -log p(label), in nats; for labels that are not exclusive, also over the classes.

    Args:
        from_logits: boolean, whether predictions are logits or log-probabilities, as a head returns them, rather than
            probabilities.
        multi_label: boolean, whether labels are not exclusive: vectors of zeros and ones, with logits of sigmoids.
        ignore_class: a label whose examples do not count, or None.
        name: the name of the metric.
        dtype: dtype of the result; None for Keras' default.

    Example:
        >>> metric = NegativeLogLikelihood()
        >>> round(float(metric([0, 1], [[0.5, 0.5], [0.75, 0.25]])), 4)  # (log 2 + log 4) / 2
        1.0397
    """

    def __init__(self, name: str | None = "nll", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self._total, self._weight = self.sum_of("total"), self.sum_of("weight")

    def add(self, examples: Examples) -> None:
        _, log_p, targets, weights, log_complements = examples
        if log_complements is None:
            losses = -ops.sum(ops.where(targets > 0, targets * log_p, 0.0), axis=-1)
        else:
            losses = -ops.mean(targets * log_p + (1.0 - targets) * log_complements, axis=-1)
        self._total.add(ops.sum(ops.where(weights == 0, 0.0, weights * losses)))
        self._weight.add(ops.sum(weights))

    def result(self) -> Any:
        """The mean."""
        return ops.divide_no_nan(self._total.value(), self._weight.value())


@keras.saving.register_keras_serializable("keras_het")
class BrierScore(ProbabilityMetric):
    """The mean squared distance of the probabilities from the labels, and its parts.

        BS = mean over n of sum over k of (p_nk - y_nk)^2 = reliability - resolution + uncertainty + within

    The bins of p_nk have equal width, and every class has its own. Reliability is the distance of the mean p of a bin
    from the fraction of labels in it (0 is best). Resolution is the distance of these shares from the fraction of the
    class (more is better). Uncertainty is the variance of the labels, which no model changes. `within` is the part that
    is lost by taking a bin for one forecast. The score is from 0 to 2 where classes are exclusive, else from 0 to K.

    Args:
        bins: the number of bins, 1 to 2^16.
        name: the name of the metric.
        kwargs: arguments of `ProbabilityMetric`, such as `from_logits=True` for the outputs of a head.
    Source: Brier 1950; Murphy 1973, "A new vector partition of the probability score"; `within` as Stephenson, Coelho
        and Jolliffe 2008.

    Example:
        >>> found = BrierScore()([0, 1], [[0.9, 0.1], [0.4, 0.6]])
        >>> round(float(found["brier_score"]), 4)  # (.01 + .01 + .16 + .16) / 2
        0.17
    """

    def __init__(self, bins: int = 15, name: str | None = "brier_score", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.bins = check_integer("bins", bins, 1, MAX_BINS)
        self._weight, self._distance = self.sum_of("weight"), self.sum_of("distance")
        self._parts: tuple[Any, ...] = ()

    def add(self, examples: Examples) -> None:
        units = examples.p.shape[-1]
        if not self._parts:
            self._parts = tuple(
                self.sum_of(name, (self.bins * units,)) for name in ("weights", "probabilities", "labels")
            )
        p, targets, weights = examples.p, examples.targets, examples.weights
        counted = ops.where(weights == 0, 0.0, weights)[:, None]
        self._weight.add(ops.sum(weights))
        self._distance.add(ops.sum(counted * ops.square(p - targets)))
        places = bin_of(self.bins, p) * units + ops.arange(units, dtype="int32")
        for part, value in zip(self._parts, (ops.ones_like(p), p, targets), strict=True):
            part.add(sum_by(places, counted * value, self.bins * units))

    def result(self) -> dict[str, Any]:
        """A dict of the score, under the metric's name, and of its parts, whose names follow that name."""
        weight, parts = self._weight.value(), [ops.reshape(part.value(), (self.bins, -1)) for part in self._parts]
        if not parts:
            parts = [ops.zeros((self.bins, 1))] * 3
        count, p, labels = (ops.divide_no_nan(part, weight) for part in parts)
        frequency = ops.sum(labels, axis=0)
        reliability = ops.sum(ops.divide_no_nan(ops.square(p - labels), count))
        resolution = ops.sum(ops.divide_no_nan(ops.square(labels - count * frequency), count))
        uncertainty = ops.sum(frequency * (1.0 - frequency))
        score = ops.divide_no_nan(self._distance.value(), weight)
        return {
            self.name: score,
            f"{self.name}_reliability": reliability,
            f"{self.name}_resolution": resolution,
            f"{self.name}_uncertainty": uncertainty,
            f"{self.name}_within": score - (reliability - resolution + uncertainty),
        }

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}
