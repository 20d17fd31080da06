"""Losses of the joint likelihood of several labels, or of all pixels, for heads that return a distribution."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import mask_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import MAX_CLASSES, check_ignore_class, check_integer, check_numbers
from keras_het.losses.crossentropy import Crossentropy
from keras_het.losses.distribution_loss import JointLoss, align_labels, shapes_fit
from keras_het.ops.joint import MISSING_LABEL, log_joint_labels, log_joint_pixels
from keras_het.ops.packed import unpack


@keras.saving.register_keras_serializable("keras_het")
class JointMultiLabelCrossentropy(JointLoss):
    """Negative log-likelihood of a whole label vector, for `layers.JointHeteroscedasticDense` with a sigmoid link.

        -log E_{e_R}[ prod_c p(y_c | e_R) ],     p(1 | e_R) = q_c + (1 - q_c - f_c) E_{e_c}[sigmoid(u_c)],
        u = mu + d e_K + V e_R in temperatures,  f_c = p(label 0 | true label 1),  q_c = p(label 1 | true label 0)

    If labels occur together more often than their probabilities imply, V learns a common direction for them. The binary
    crossentropy of the mean probabilities gives no gradient for that. The diagonal noise is integrated in closed form,
    and the factor noise with quasi-random nodes, new at every training step and constant in `evaluate`.

    With known flip rates, the model learns the true labels instead of the observed labels. Missing positives, such as
    unmarked objects, are false negatives.

    Args:
        num_samples: S, the number of nodes.
        false_negative_rate, false_positive_rate: f and q, one number, or one for each label; in [0, 1), f + q < 1.
        seed: seed of the nodes, in [0, 2^31).
        kwargs: arguments of any Keras loss.
    Input shape: labels `(..., C)`, or `(...)` for one label: 0, 1, or -1 for a missing label; any other number makes
        the loss nan. A row with only missing labels counts neither in the sum nor in the mean. Predictions
        `(..., C (2 + R) + 1)`.
    Raises:
        ValueError: for arguments outside these ranges, or predictions that are no distribution of C logits with at most
            C factors.
    Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, section 2; Monteiro et al. 2020, Eq. 5, for
        the joint form, here of labels.

    Example:
        >>> from keras_het.layers import JointHeteroscedasticDense
        >>> from keras_het.models import DistributionModel
        >>> inputs = keras.Input((8,))
        >>> model = DistributionModel(inputs, JointHeteroscedasticDense(5, num_factors=2)(inputs))
        >>> model.compile("adam", JointMultiLabelCrossentropy(), metrics=["binary_accuracy"])
        >>> history = model.fit(np.ones((4, 8)), np.ones((4, 5)), verbose=0)
        >>> model.predict(np.ones((4, 8)), verbose=0).shape
        (4, 5)
    """

    def __init__(
        self,
        num_samples: int = 128,
        false_negative_rate: Any = 0.0,
        false_positive_rate: Any = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_samples, seed, **kwargs)
        self.false_negative_rate = _check_rates("false_negative_rate", false_negative_rate)
        self.false_positive_rate = _check_rates("false_positive_rate", false_positive_rate)
        if np.any(self.false_negative_rate + self.false_positive_rate >= 1.0):
            rule = "be less than 1 - false_positive_rate, because labels carry no information otherwise"
            received = f"{false_negative_rate=}, {false_positive_rate=}"
            raise refusal("false_negative_rate", rule, received)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        labels, output = self.read(y_true, y_pred)
        rates = self.false_negative_rate, self.false_positive_rate
        losses = -log_joint_labels(output.normal, labels, self.nodes(output), rates)
        return Crossentropy.mask_ignored(losses, ops.any(ops.not_equal(labels, MISSING_LABEL), axis=-1))


def _check_rates(name: str, rates: Any) -> np.ndarray:
    """Checks that flip rates are in [0, 1), and returns an array, `()` or `(C,)`."""
    array = check_numbers(name, rates)
    if array.ndim > 1 or not np.all((array >= 0.0) & (array < 1.0)):
        raise refusal(name, "be a number in [0, 1), or one for each label", f"{rates!r}")
    return array


@keras.saving.register_keras_serializable("keras_het")
class JointSegmentationCrossentropy(JointLoss):
    """Negative log-likelihood of a whole label map, for `layers.StochasticSegmentation`.

        -log E_{e_R}[ prod_i E_{e_i}[softmax(mu_i + d_i e_i + V_i e_R)_{y_i}] ],     e_R shared by all pixels i

    If the labels of pixels vary together, for example because one annotator marks them and another does not, V learns a
    common direction for them. The crossentropy of each pixel gives no gradient for that. The diagonal noise is
    integrated in closed form (`ops.joint.log_joint_pixels`), and the factor noise with quasi-random nodes, new at
    every training step and constant in `evaluate`.

    The loss of an image is a sum over its pixels, in nats, as in the paper. So do not reuse a learning rate or weight
    decay that was tuned for a mean over pixels.

    Args:
        num_classes: C.
        num_samples: S, the number of nodes.
        ignore_class: integer label of pixels that do not count: their means, standard deviations and factors get no
            gradient; None if all pixels count.
        seed: seed of the nodes, in [0, 2^31).
        kwargs: arguments of any Keras loss.
    Input shape: labels `(B, ...)` or `(B, ..., 1)`, integers; a label that is neither a class nor `ignore_class` makes
        the loss nan. Predictions `(B, ..., C (2 + R) + 1)`, such as `(B, H, W, C (2 + R) + 1)`.
    Output shape: a loss for each image. An image with only ignored pixels counts neither in the sum nor in the mean.
    Raises:
        ValueError: for arguments outside these ranges, or predictions that are no distribution of C logits.
    Source: Monteiro et al. 2020, Eq. 5.

    Example:
        >>> import numpy as np
        >>> from keras_het.layers import StochasticSegmentation
        >>> from keras_het.models import DistributionModel
        >>> inputs = keras.Input((8, 8, 3))
        >>> features = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
        >>> model = DistributionModel(inputs, StochasticSegmentation(2, num_factors=3)(features))
        >>> model.compile("adam", JointSegmentationCrossentropy(2), metrics=["sparse_categorical_accuracy"])
        >>> history = model.fit(np.ones((4, 8, 8, 3)), np.ones((4, 8, 8)), verbose=0)
        >>> model.predict(np.ones((4, 8, 8, 3)), verbose=0).shape
        (4, 8, 8, 2)
    """

    def __init__(
        self, num_classes: int, num_samples: int = 20, ignore_class: int | None = None, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(num_samples, seed, **kwargs)
        self.num_classes = check_integer("num_classes", num_classes, 2, MAX_CLASSES)
        self.ignore_class = check_ignore_class(ignore_class)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Computes the loss; raises a ValueError for predictions with a Keras mask."""
        rule = "have no Keras mask: give masked pixels the label `ignore_class`, because an image has one loss"
        refuse_if(mask_of(y_pred) is not None, "y_pred", rule, "a mask")
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        output = unpack(y_pred, self.num_classes)
        labels = align_labels(y_true, y_pred)
        if not shapes_fit(labels.shape[1:], (*y_pred.shape[1:-1], 1)):
            rule = f"have the shape of the pixels, {tuple(y_pred.shape)[:-1]}, or one more axis of length 1"
            raise refusal("y_true", rule, shape=y_true)
        labels, nodes = labels[..., 0], self.nodes(output)
        if self.ignore_class is None:
            return -log_joint_pixels(output.normal, labels, nodes)
        valid = ops.not_equal(labels, self.ignore_class)
        has_valid = ops.any(valid, axis=tuple(range(1, len(valid.shape))))
        return Crossentropy.mask_ignored(-log_joint_pixels(output.normal, labels, nodes, valid), has_valid)
