"""Heads from the weights of edward2's heteroscedastic layers."""

from typing import Any

import numpy as np

from keras_het import links
from keras_het.layers import HeteroscedasticDense
from keras_het.layers.noisy_dense import from_short
from keras_het.models.copying import unchanged_seed

MIN_SCALE = 1e-3  # edward2's MIN_SCALE_MONTE_CARLO
MAPS = ("loc_layer", "diag_layer", "scale_layer", "scale_layer_homoscedastic", "scale_layer_heteroscedastic")


def from_edward2(
    weights: dict[str, Any], *, link: str = "softmax", temperature: float = 1.0, **head_arguments: Any
) -> HeteroscedasticDense:
    """Returns a `HeteroscedasticDense` with the predictive probabilities of a trained layer of edward2.

    The layers are MCSoftmaxDense (diagonal), MCSoftmaxDenseFA and MCSigmoidDenseFA (full and parameter-efficient), with
    normal noise. Their parameter-efficient form has a bias b on V, u = mu + d * e_K + v * (V e_R + b), which moves the
    mean by v * b. v is an affine map of the input, so the moved mean is one, too, and becomes the mu of the head:
    nothing is lost.

    Args:
        weights: arrays by name, `{w.name: w.numpy() for w in layer.weights}`.
        link: "softmax", or "sigmoid" for MCSigmoidDenseFA and for MCSoftmaxDense of two classes, which has one logit.
        temperature: of the layer, which is not among its weights; edward2's default is 1.
        head_arguments: other arguments of `HeteroscedasticDense`, such as `integrator` or `name`.
    Returns:
        a built `HeteroscedasticDense`.
    Raises:
        ValueError: for names or shapes that are not of one of these layers, or arrays that are not finite numbers.
    Source: edward2 0.0.2, `edward2/tensorflow/layers/heteroscedastic.py`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> maps = {"loc_layer": 3, "diag_layer": 3, "scale_layer": 6}
        >>> weights = {f"{name}/kernel:0": rng.normal(size=(8, width)) for name, width in maps.items()}
        >>> weights |= {f"{name}/bias:0": np.zeros(width) for name, width in maps.items()}
        >>> head = from_edward2(weights)
        >>> head.units, head.num_factors, head.parameter_efficient
        (3, 2, False)
    """
    maps = _maps(weights)
    parts = _parts(maps)
    (features, units), efficient = parts["loc"][0].shape, "row_scale" in parts
    num_factors = _num_factors(parts, units, efficient)
    if units < links.get(link).min_units:
        raise ValueError(f"`link` must be 'sigmoid' for weights of one logit. Received: link={link!r}")
    with unchanged_seed():
        head = HeteroscedasticDense(
            units,
            covariance=from_short(num_factors, efficient, min_scale=MIN_SCALE),
            link=link,
            temperature=temperature,
            **head_arguments,
        )
        head.build((None, features))
    for name, arrays in parts.items():
        owner = head if name == "loc" else head.covariance
        getattr(owner, f"{name}_layer").set_weights([arrays[0].T] if name == "factor" and efficient else arrays)
    return head


def _maps(weights):
    """Kernels and biases as `{"loc_layer": [kernel, bias], ...}`."""
    if not isinstance(weights, dict):
        raise ValueError(
            f"`weights` must be a dict, {{w.name: w.numpy() for w in layer.weights}}. Received: a "
            f"{type(weights).__name__}"
        )
    maps: dict[str, dict] = {}
    paths: dict[tuple, str] = {}
    for path, array in weights.items():
        if not isinstance(path, str):
            raise ValueError(f"`weights` must have names that are strings. Received: the name {path!r}")
        layer, _, kind = path.split(":")[0].rpartition("/")
        name = max((name for name in MAPS if layer.endswith(name)), key=len, default=None)
        if name is None or kind not in ("kernel", "bias"):
            raise ValueError(
                f"`weights` must be the kernels and biases of {', '.join(MAPS)}. Received: the name {path!r}"
            )
        if paths.setdefault((name, kind), path) != path:
            raise ValueError(f"`weights` must be those of one layer. Received: {paths[name, kind]!r} and {path!r}")
        maps.setdefault(name, {})[kind] = _numbers(path, array)
    for name, arrays in maps.items():
        if len(arrays) != 2 or arrays["kernel"].shape[1:] != arrays["bias"].shape:
            shapes = {kind: array.shape for kind, array in arrays.items()}
            raise ValueError(f"`weights` must have a kernel (D, N) and a bias (N,) of {name}. Received: {shapes}")
    return {name: [arrays["kernel"], arrays["bias"]] for name, arrays in maps.items()}


def _numbers(path, array):
    """An array as NumPy, if it has numbers, all of them real and finite."""
    array = np.asarray(array)
    if not array.size:
        raise ValueError(f"`weights` must have numbers in every array. Received: shape {array.shape} of {path!r}")
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        found = "nan or inf" if array.dtype.kind in "fiu" else f"an array of {array.dtype}"
        raise ValueError(f"`weights` must be finite numbers. Received: {found} in {path!r}")
    return array


def _parts(maps):
    """Kernels and biases under our names, with the bias on V moved into the mean."""
    if set(maps) == {"loc_layer", "scale_layer"}:
        return {"loc": maps["loc_layer"], "scale_diag": maps["scale_layer"]}
    names = {"loc_layer": "loc", "diag_layer": "scale_diag"}
    if "scale_layer" in maps:
        names["scale_layer"] = "factor"
    elif len(maps) > 2:
        names |= {"scale_layer_homoscedastic": "factor", "scale_layer_heteroscedastic": "row_scale"}
    if set(maps) != set(names):
        raise ValueError(f"`weights` must be those of one layer: {', '.join(names)}. Received: {', '.join(maps)}")
    parts = {ours: maps[theirs] for theirs, ours in names.items()}
    if "row_scale" in parts:
        shift = parts["factor"][1]
        parts["loc"] = [
            mean + shift * row_scale for mean, row_scale in zip(parts["loc"], parts["row_scale"], strict=True)
        ]
    return parts


def _num_factors(parts, units, efficient):
    if "factor" not in parts:
        return 0
    inputs, width = parts["factor"][0].shape
    if width % units or (efficient and width != units) or parts["scale_diag"][0].shape[1] != units:
        shapes = {name: arrays[0].shape for name, arrays in parts.items()}
        raise ValueError(f"`weights` must have maps whose widths fit {units} classes. Received: kernels {shapes}")
    return inputs if efficient else width // units
