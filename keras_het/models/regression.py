"""Conversion of a trained regression to a model that also predicts the covariance of the targets."""

from typing import Any

import keras
import numpy as np

from keras_het.base.batches import labelled_batches
from keras_het.base.graph import model_inputs
from keras_het.base.internals import compile_arguments
from keras_het.base.masks import drop_masked, masked_predictor
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_boolean, check_number, check_numbers
from keras_het.criteria.criterion import find_criteria
from keras_het.layers import HeteroscedasticNormal
from keras_het.losses import MultivariateNormalNLL
from keras_het.models.conversion import check_array_output, convertible_ending, mean_arguments, successors_of
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
    """Replaces the last Dense layer of a regression by a `HeteroscedasticNormal` in a new model.

    This is the recommended way to learn a covariance: train the mean with the squared error as usual, convert the
    model, and continue training. A likelihood that learns mean and covariance from the start can give up examples that
    are hard at first.

    Before training, the new model returns the old predictions, with the same variance for all inputs. Pass `x` and `y`
    that the old model was not trained on, so that the noise of each target starts at the size of its residuals.
    Standardise the targets before you train the mean, because a variance that starts far from 1 is learned slowly.

    The new model is compiled if the old model is: with `losses.MultivariateNormalNLL(form)`, the old metrics, and an
    optimizer of equal configuration and fresh state. The layers before the head are shared with the old model, which is
    trained with the new model, unless you copy them.

    Args:
        model: a functional or built Sequential model that ends in a Dense layer (or 1x1 Conv2D) without activation.
        x: examples, whose residuals set the scale of the noise: arrays, or a data set of pairs.
        y: targets, `(N, K)`, or `(N,)` for a single target; None for a data set.
        num_factors: R, see `HeteroscedasticNormal`; 0 for targets that are independent given x.
        initial_scale: initial standard deviation of each target, instead of `x` and `y`.
        form: form of the loss, see `MultivariateNormalNLL`; "faithful" also sets `stop_features` of the head.
        train_mean: False freezes the mean and copies of all layers before it. Training then changes only the
            covariance, and the predictions stay the same.
        layer: name of the Dense layer to replace, whose later layers are dropped; None for the layer that the model
            ends in.
        clone: boolean, whether to copy the layers before the head, through a `.keras` file, instead of sharing them.
        head_arguments: other arguments of `HeteroscedasticNormal`. `use_bias`, `name`, `kernel_regularizer` and
            `bias_regularizer` default to the values of the old layer.
    Returns:
        a `DistributionModel`.
    Raises:
        ValueError: if the model has no graph, no such layer or several outputs; if an activation or a reshaping layer
            follows the layer; for a loss of classes; for neither data nor `initial_scale`, or both; for targets of
            another shape, or targets that are not finite.
    Warns: if an old metric or the optimizer cannot be rebuilt; the new model is then not compiled.

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
    check_array_output(model)
    _check_regression(model, ending)
    old, train_mean = ending.head, check_boolean("train_mean", train_mean)
    loss, scales = MultivariateNormalNLL(form), _initial_scales(model, ending, x, y, initial_scale)
    arguments = {**mean_arguments(old), "stop_features": form == "faithful", **head_arguments}
    with preserve_seed(head_arguments.get("seed")):
        body = make_body(model, ending, check_boolean("clone", clone) or not train_mean)
        new = HeteroscedasticNormal(units_of(old), num_factors, **{"name": unused_name(old.name, body), **arguments})
        converted = DistributionModel(model_inputs(body), new(body.outputs[0]), name=body.name)
    new.loc_layer.set_weights(dense_weights(old))
    new.covariance.restart_at(scales)
    new.loc_layer.trainable = old.trainable
    if not train_mean:
        body.trainable = new.loc_layer.trainable = False
    compile_like(converted, model, None, loss=loss, successors=successors_of(old, new.loc_layer))
    return converted


def _check_regression(model: keras.Model, ending: Ending) -> None:
    if ending.head_activation is not None or ending.reshapes:
        rule = "end in a Dense layer without activation, with no layer after it"
        activation = f"the activation {ending.head_activation!r}"
        raise refusal("model", rule, activation if ending.head_activation else f"{ending.reshapes[0].name!r} after it")
    loss, units = compile_arguments(model).get("loss"), units_of(ending.head)
    is_classifier = any(
        part.is_known and not part.is_regression and part.label_form(units) != "targets" for part in find_criteria(loss)
    )
    rule = "be a regression. Convert a classifier with heteroscedastic(model, num_factors)"
    refuse_if(is_classifier, "model", rule, f"loss={loss!r}")
    rule = "have no preprocessor: convert keras.Model(task.input, task.output) instead"
    refuse_if(getattr(model, "preprocessor", None) is not None, "model", rule, value=model.name)


def _initial_scales(model: keras.Model, ending: Ending, x: Any, y: Any, initial_scale: float | None) -> np.ndarray:
    """Returns the initial standard deviation of each target, `(K,)`: `initial_scale`, or computed from residuals."""
    rule = "be a number without `x` and `y`, and None with them, because their residuals set the scale"
    refuse_if((x is None) == (initial_scale is None), "initial_scale", rule, value=initial_scale)
    units = units_of(ending.head)
    if initial_scale is not None:
        return np.full(units, check_number("initial_scale", initial_scale, above=0.0))
    predict, squares = masked_predictor(model, ending.head(ending.features)), []
    for inputs, targets in labelled_batches(x, y, BATCH_SIZE):
        means, mask = predict(inputs)
        shapes = (means.shape[:-1], means.shape) if units == 1 else (means.shape,)
        refuse_if(targets.shape not in shapes, "y", f"have shape (N, ..., {units})", shape=targets)
        targets, means = drop_masked(mask, check_numbers("y", targets).reshape(means.shape), means)
        refuse_if(not np.isfinite(targets).all(), "y", "be finite", "nan or infinity")
        squares.append(np.square(targets - means.astype("float64")).reshape(-1, units))
    refuse_if(not any(map(len, squares)), "x", "have at least one example", "none")
    return np.sqrt(np.concatenate(squares).mean(axis=0))
