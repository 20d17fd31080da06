"""Conversion of a trained regression to one that also predicts how far the targets stray from its predictions."""

from typing import Any

import keras
import numpy as np

from keras_het.base.batches import labelled_batches
from keras_het.base.graph import model_inputs
from keras_het.base.masks import drop_masked, masked_predictor
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_boolean, check_number
from keras_het.layers import HeteroscedasticNormal
from keras_het.losses import MultivariateNormalNLL
from keras_het.models.conversion import convertible_ending
from keras_het.models.copying import dense_weights, make_body, preserve_seed
from keras_het.models.distribution_model import DistributionModel
from keras_het.models.output_layers import compile_like, unused_name
from keras_het.reading.ending import Ending, units_of

BATCH_SIZE = 128


def heteroscedastic_regression(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    *,
    num_factors: int | None = 0,
    initial_scale: float | None = None,
    form: str = "nll",
    train_mean: bool = True,
    layer: str | None = None,
    clone: bool = False,
    **head_arguments: Any,
) -> DistributionModel:
    """Returns a new model with the last Dense layer of a regression replaced by a `HeteroscedasticNormal`.

    The recommended road to a learned covariance: train the mean by the squared error as usual, convert the model, and
    train on. A likelihood that learns the mean and the covariance from the start may give up the examples that are
    hard at first.

    The new model predicts the old predictions, with the same variance for all inputs: before it is trained, it is the
    usual network of constant variance. Give `x` and `y` that the old model was not trained on, and the noise of each
    target starts as large as its residuals. Standardise the targets before the mean is trained: a variance that starts
    far from 1 is learned slowly.

    The new model is compiled if the old one is, with `losses.MultivariateNormalNLL(form)`, the old metrics, and an
    optimizer of equal configuration and fresh state. The layers before the head are shared with the old model, and are
    trained with it, unless they are copied.

    Args:
        model: a functional model, or a Sequential one that is built, that ends in a Dense layer (or 1x1 Conv2D)
            without activation.
        x: examples, as for `fit`, whose residuals give the scale of the noise; arrays, or a data set of pairs.
        y: their targets, `(N, K)`, or `(N,)` for one; None for a data set.
        num_factors: R, see `HeteroscedasticNormal`; 0 is for targets that are independent, given x.
        initial_scale: the standard deviation of each target at the start, instead of `x` and `y`.
        form: form of the loss, see `MultivariateNormalNLL`; "faithful" also sets `stop_features` of the head.
        train_mean: False leaves the mean, and all layers before it, as they are (`trainable=False`, on copies of these
            layers): only the covariance is learned, and the predictions stay the old ones.
        layer: the name of the Dense layer to replace; None finds the last one. The layers after it are left out.
        clone: boolean, whether to copy the layers before the head, by way of a `.keras` file, instead of sharing them.
        head_arguments: other arguments of `HeteroscedasticNormal`. `use_bias`, `name`, `kernel_regularizer` and
            `bias_regularizer` are taken from the old layer unless given.
    Returns:
        a `DistributionModel`.
    Raises:
        ValueError: if there is no graph, no such layer, or more than one output; if an activation or a reshaping layer
            stands behind it; unless either data or `initial_scale` are given; for targets of another shape, or not
            finite.
    Warns: if an old metric or the optimizer cannot be made again; the new model is then not compiled.

    Example:
        >>> old = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2)])
        >>> old.compile("adam", "mse", metrics=["mae"])
        >>> x, y = np.ones((10, 3)), np.zeros((10, 2))
        >>> new = heteroscedastic_regression(old, x, y, num_factors=1)
        >>> bool(np.array_equal(new.predict(x, verbose=0), old.predict(x, verbose=0)))
        True
        >>> lower, upper = new.predict_interval(x, level=0.95, verbose=0)
    """
    ending = convertible_ending(model, layer)
    _check_regression(model, ending)
    old, mean_is_trained = ending.head, check_boolean("train_mean", train_mean)
    loss, scales = MultivariateNormalNLL(form), _scales(model, ending, x, y, initial_scale)
    arguments = {
        "use_bias": old.use_bias,
        "kernel_regularizer": old.kernel_regularizer,
        "bias_regularizer": old.bias_regularizer,
        "stop_features": form == "faithful",
        **head_arguments,
    }
    with preserve_seed(head_arguments.get("seed")):
        body = make_body(model, ending, check_boolean("clone", clone) or not mean_is_trained)
        new = HeteroscedasticNormal(units_of(old), num_factors, **{"name": unused_name(old.name, body), **arguments})
        converted = DistributionModel(model_inputs(body), new(body.outputs[0]), name=body.name)
    new.loc_layer.set_weights(dense_weights(old))
    new.covariance.restart_at(scales)
    if not mean_is_trained:
        body.trainable = new.loc_layer.trainable = False
    compile_like(converted, model, None, loss=loss)
    return converted


def _check_regression(model: keras.Model, ending: Ending) -> None:
    if ending.head_activation is not None or ending.reshapes:
        rule = "end in a Dense layer without activation, and nothing behind it, for its mean is affine"
        found = (
            f"the activation {ending.head_activation!r}"
            if ending.head_activation
            else f"{ending.reshapes[0].name!r} behind it"
        )
        raise refusal("model", rule, found)
    rule = "have no preprocessor: convert keras.Model(task.input, task.output) instead"
    refuse_if(getattr(model, "preprocessor", None) is not None, "model", rule, value=model.name)


def _scales(model: keras.Model, ending: Ending, x: Any, y: Any, initial_scale: float | None) -> np.ndarray:
    """The standard deviation of each target at the start, `(K,)`: as given, or of the residuals."""
    rule = "be given without `x` and `y`, and None with them: their residuals give the scale"
    refuse_if((x is None) == (initial_scale is None), "initial_scale", rule, value=initial_scale)
    units = units_of(ending.head)
    if initial_scale is not None:
        return np.full(units, check_number("initial_scale", initial_scale, above=0.0))
    predict, squares = masked_predictor(model, ending.head(ending.features)), []
    for inputs, targets in labelled_batches(x, y, BATCH_SIZE):
        predicted, mask = predict(inputs)
        expected = (predicted.shape[:-1], predicted.shape) if units == 1 else (predicted.shape,)
        rule = f"be finite, of shape (N, ..., {units})"
        refuse_if(targets.shape not in expected, "y", rule, shape=targets)
        kept, of_mean = drop_masked(mask, targets.reshape(predicted.shape), predicted)
        refuse_if(not np.isfinite(kept).all(), "y", rule, shape=targets)
        squares.append(np.square(kept - of_mean.astype("float64")).reshape(-1, units))
    return np.sqrt(np.concatenate(squares).mean(axis=0))
