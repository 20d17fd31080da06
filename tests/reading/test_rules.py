"""The match of a loss or metric computes the same value from the outputs of a head."""

import keras
import numpy as np
import pytest
from keras import losses, metrics

import keras_het
from keras_het.criteria.criterion import Criterion, find_rule
from keras_het.losses import (
    AnnotatorsLoss,
    ForwardCorrectedCrossentropy,
    GeneralizedCrossentropy,
    SymmetricCrossentropy,
)
from keras_het.reading.ending import endings
from tests.layers.heads import UNITS, X, make_head, make_model
from tests.reading.test_check import LABELS, VECTORS

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("kind", "role", "identifier", "labels"), [
    ("full", "loss", "sparse_categorical_crossentropy", LABELS),
    ("full", "loss", losses.SparseCategoricalCrossentropy(ignore_class=1), LABELS),
    ("full", "loss", losses.CategoricalCrossentropy(label_smoothing=0.1), VECTORS),
    ("full", "loss", losses.categorical_focal_crossentropy, VECTORS),
    ("full", "loss", ForwardCorrectedCrossentropy(0.7 * np.eye(UNITS) + 0.3 / UNITS), LABELS),
    ("full", "loss", GeneralizedCrossentropy(q=0.4), LABELS),
    ("full", "loss", SymmetricCrossentropy(beta=0.5), LABELS),
    ("full", "metrics", "categorical_crossentropy", VECTORS),
    ("full", "metrics", metrics.BinaryAccuracy(threshold=0.3), VECTORS),
    ("sigmoid", "loss", "bce", VECTORS),
    ("sigmoid", "loss", losses.BinaryFocalCrossentropy(gamma=3.0, apply_class_balancing=True), VECTORS),
    ("sigmoid", "metrics", metrics.BinaryAccuracy(threshold=0.3), VECTORS),
    ("sigmoid", "metrics", metrics.Precision(), VECTORS),
    ("sigmoid", "metrics", metrics.AUC(), VECTORS),
    ("full", "metrics", keras_het.metrics.ExpectedCalibrationError(num_bins=3), LABELS),
])  # fmt: skip
def test_the_mend_gives_the_value_of_probabilities(kind, role, identifier, labels):
    """With noise to spare, so that a loss of log-probabilities that forgot a setting would differ."""
    model = make_model(make_head(kind))
    module = getattr(keras, {"loss": "losses"}.get(role, role))
    fitting = Criterion(identifier, module).match(endings(model)[0])
    assert fitting is not identifier
    outputs = keras.ops.convert_to_tensor(model.predict(X, verbose=0))
    p = keras.ops.exp(outputs) if kind == "full" else keras.ops.sigmoid(outputs)

    def value(which, predictions):
        return float(keras.ops.mean(module.get(which)(labels, predictions)))

    assert value(fitting, outputs) == pytest.approx(value(identifier, p), rel=1e-5)


@pytest.mark.parametrize("metric", [metrics.MeanIoU(2), metrics.OneHotMeanIoU(UNITS), metrics.OneHotIoU(UNITS, [0, 2])])
@pytest.mark.parametrize("form", ["integers", "vectors"])
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # JAX, of the metrics of Keras
def test_the_overlap_that_is_named_has_the_value_of_its_definition(metric, form):
    model = make_model(make_head("full"))
    criterion = Criterion(metric, metrics)
    criterion = Criterion(criterion.with_labels(form), metrics)
    assert criterion.metric_label_form == form
    overlap = criterion.match(endings(model)[0])
    outputs = model.predict(X, verbose=0)
    classes, predicted = range(UNITS) if "Mean" in type(metric).__name__ else [0, 2], outputs.argmax(axis=1)
    pairs = [(k == LABELS, k == predicted) for k in classes]
    expected = np.mean([(true & flags).sum() / (true | flags).sum() for true, flags in pairs if (true | flags).any()])
    assert float(overlap(LABELS if form == "integers" else VECTORS, outputs)) == pytest.approx(expected)


def test_what_needs_exclusive_classes_does_not_fit_logits_of_each_label():
    output = endings(make_model(make_head("sigmoid")))[0]
    assert Criterion(keras_het.metrics.ExpectedCalibrationError(), metrics).match(output) is None
    assert Criterion(SymmetricCrossentropy()).match(output) is None


def test_of_every_loss_of_this_package_it_is_known_what_it_takes():
    kinds = {getattr(keras_het.losses, name) for name in keras_het.losses.__all__}
    losses = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, keras.losses.Loss)}
    unknown = {kind for kind in losses if find_rule(kind) is None}
    assert unknown == {AnnotatorsLoss}  # which is judged by the loss that it wraps
