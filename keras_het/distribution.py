"""Layouts of the weights of heads on several devices, for `keras.distribution`."""

import re
from typing import Any

import keras

from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_even_split
from keras_het.layers.noisy_dense import NoisyDense

__all__ = ["layout_map"]

ALTERNATIVES = {
    "tensorflow": "make the model inside the scope of tf.distribute.MirroredStrategy, which copies it to every device",
    "torch": "wrap the model in torch.nn.parallel.DistributedDataParallel, which copies it to every device",
}


class _HeadLayoutMap(keras.distribution.LayoutMap):
    """LayoutMap that raises for the covariance of a head without an entry, which Keras would silently replicate."""

    paths: tuple[str, ...] = ()  # ends of the paths of the covariances' weights

    def __getitem__(self, path: str) -> Any:
        layout = super().__getitem__(path)
        if layout is None and path.endswith(self.paths):
            rule = "have an entry for each weight of a head: call layout_map again, with the model that has this head"
            raise refusal("The layout", rule, f"the weight {path!r}")
        return layout


def layout_map(model: keras.layers.Layer, mesh: Any, axis: str = "model") -> keras.distribution.LayoutMap:
    """Returns the layout that splits the heads of a model by classes, for `keras.distribution.ModelParallel` on JAX.

    The kernels and biases of mu, d and V are split on the axis of the classes. Every device then has whole classes: a
    fraction of the weights, of the optimizer's state and of the logits. The devices exchange a maximum and sums for
    each example and node, and no device gathers all classes. Noise of the features (`Latent`), T of a `NoiseTransition`
    and all other layers are whole on every device, unless you add entries for them.

    Keras reads a layout when it makes a weight, and finds the entry by the layer's name. So call this function before
    the model is built, with the head or with a model that contains it. A built model with the same layer names also
    works, for example one that you copy with `clone_model`.

    Args:
        model: head, or a model or layer with one or more heads, built or not.
        mesh: a `keras.distribution.DeviceMesh`.
        axis: name of the mesh axis whose devices share the classes.
    Returns:
        a `keras.distribution.LayoutMap`, to which you can add entries. It raises ValueError for the covariance of a
            head of another name.
    Raises:
        ValueError: if the model has no head, or a built head with a weight that its `class_axes` does not name; if two
            heads of one name have different covariances; if the mesh has no such axis, or its devices cannot share the
            classes evenly; on other backends than JAX.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), ["cpu:0"])
        >>> if keras.config.backend() == "jax":
        ...     layout = layout_map(HeteroscedasticDense(1000, num_factors=15, name="head"), mesh)
        ...     distribution = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
        ...     with distribution.scope():
        ...         model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(1000, name="head")])
        ...     assert layout["head/covariance/factor/kernel"].axes == (None, "model")
    """
    if keras.config.backend() != "jax":
        backend = keras.config.backend()
        rule = f"be JAX, because keras.distribution splits weights only there; on {backend}, {ALTERNATIVES[backend]}"
        raise refusal("The backend", rule, f"the backend {backend!r}")
    refuse_if(not isinstance(model, keras.layers.Layer), "model", "be a model or a layer of Keras", kind=model)
    if not isinstance(mesh, keras.distribution.DeviceMesh):
        raise refusal("mesh", "be a keras.distribution.DeviceMesh", kind=mesh)
    if axis not in mesh.axis_names:
        raise refusal("axis", f"be an axis of the mesh, {list(mesh.axis_names)}", value=axis)
    heads = layers_of(model, NoisyDense)
    refuse_if(not heads, "model", "have a head of keras_het", f"{model.name!r}, which has none")
    layouts: dict[str, tuple] = {}
    devices = mesh.devices.shape[list(mesh.axis_names).index(axis)]
    for head in heads:
        check_even_split(head.units, devices)
        for path, class_axis in head.class_axes().items():
            # It matches a whole path in any model, by `re.search` (Keras up to 3.13) and by `re.fullmatch` (later).
            key = rf"\A(?:.*/)?{re.escape(f'{head.name}/{path}')}\Z"
            axes = () if class_axis is None else (*[None] * class_axis, axis)
            rule = "have different names if their covariances differ, because layouts are found by name"
            is_other = layouts.setdefault(key, axes) != axes
            refuse_if(is_other, "The heads", rule, f"several heads of the name {head.name!r}")
    layout = _HeadLayoutMap(mesh)
    layout.update(layouts)
    for weight in (weight for head in heads for weight in head.weights):
        rule = "name every weight of the head"
        refuse_if(layout[weight.path] is None, "`class_axes` of the covariance", rule, f"without {weight.path!r}")
    layout.paths = tuple(f"/{head.covariance.name}/{path}" for head in heads for path in head.covariance.class_axes())
    return layout
