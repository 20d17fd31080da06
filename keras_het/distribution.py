"""Heads on several devices: the layout of their weights for `keras.distribution`."""

import re
from collections.abc import Iterator
from typing import Any

import keras

from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.layers.noisy_dense import NoisyDense

__all__ = ["layout_map"]

INSTEAD = {
    "tensorflow": "make the model inside the scope of tf.distribute.MirroredStrategy, which copies it to every device",
    "torch": "wrap the model in torch.nn.parallel.DistributedDataParallel, which copies it to every device",
}


class _HeadLayoutMap(keras.distribution.LayoutMap):
    """A LayoutMap that raises for a weight of a head for which it has no entry, where Keras replicates it in silence.

    Args:
        device_mesh: a `keras.distribution.DeviceMesh`.
        heads: the heads whose weights it has entries for.
    """

    def __init__(self, device_mesh: Any, heads: list[NoisyDense]) -> None:
        super().__init__(device_mesh)
        self.names = sorted({head.name for head in heads})
        self._below_head = re.compile(rf"(?:.*/)?(?:{'|'.join(map(re.escape, self.names))})/.*(?<!/output)")
        self._of_noise = tuple(
            f"/{head.covariance.name}/{path}" for head in heads for path in head.covariance.class_axes()
        )

    def __getitem__(self, path: str) -> Any:
        found = super().__getitem__(path)
        if found is None and (self._below_head.fullmatch(path) or path.endswith(self._of_noise)):
            rule = f"have every weight of a head; it is of the heads {self.names}, and of what their `class_axes` name"
            raise refusal("The layout", rule, f"the weight {path!r}")
        return found


def layout_map(model: keras.layers.Layer, mesh: Any, axis: str = "model") -> keras.distribution.LayoutMap:
    """The layout that splits the heads of a model by classes, for `keras.distribution.ModelParallel` on JAX.

    Kernel and bias of mu, of d and of V are split on the axis of the classes, so that every device has whole classes: a
    fraction of the weights, of the optimizer's state and of the logits. The devices exchange a maximum and sums for
    each example and node, and no device gathers all classes. Noise of the features (`Latent`), T of a `NoiseTransition`
    and all other layers are whole on every device, unless you add entries for them.

    Keras looks a layout up when it makes a weight. So call this before the model is built, with the head or with a
    model that has it, or with a built model of the same layer names, such as one that `clone_model` is to copy. Names
    count: the heads must have those of the heads given here.

    Args:
        model: a head, or a model or layer with one or more heads, built or not.
        mesh: a `keras.distribution.DeviceMesh`.
        axis: the name of the axis of the mesh whose devices share the classes.
    Returns:
        a `keras.distribution.LayoutMap`, which takes further entries. It raises ValueError where a weight of a head
            without an entry is made.
    Raises:
        ValueError: if the model has no head, or a head with a weight that its `class_axes` does not name; if two
            heads of one name have other covariances; if the mesh has no such axis, or its devices cannot share the
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
        rule = f"be JAX, for keras.distribution splits weights there alone; on {backend} {INSTEAD[backend]}"
        raise refusal("The backend", rule, f"the backend {backend!r}")
    refuse_if(not isinstance(model, keras.layers.Layer), "model", "be a model or a layer of Keras", kind=model)
    if not isinstance(mesh, keras.distribution.DeviceMesh):
        raise refusal("mesh", "be a keras.distribution.DeviceMesh", kind=mesh)
    if axis not in mesh.axis_names:
        raise refusal("axis", f"be an axis of the mesh, {list(mesh.axis_names)}", value=axis)
    heads = layers_of(model, NoisyDense)
    refuse_if(not heads, "model", "have a head of keras_het", f"{model.name!r}, which has none")
    layout, devices = _HeadLayoutMap(mesh, heads), mesh.devices.shape[list(mesh.axis_names).index(axis)]
    for head in heads:
        if head.units % devices:
            more = -(-head.units // devices) * devices
            rule = f"be divisible by the {devices} devices of the axis {axis!r}, as {more} is; labels need not name all"
            raise refusal("units", rule, f"units={head.units} of the head {head.name!r}")
    layout.update(_of_all(heads, axis))
    for weight in (weight for head in heads for weight in head.weights):
        layout[weight.path]  # raises for a weight that has none
    return layout


def _of_all(heads: list[NoisyDense], axis: str) -> dict[str, tuple]:
    """Keys and layouts of the weights of all heads."""
    found: dict[str, tuple] = {}
    for head in heads:
        for key, axes in _entries(head, axis):
            if found.setdefault(key, axes) != axes:
                rule = "have names of their own where their covariances differ, for names find the layouts"
                raise refusal("The heads", rule, f"several heads of the name {head.name!r}")
    return found


def _entries(head: NoisyDense, axis: str) -> Iterator[tuple[str, tuple]]:
    """Keys and layouts of the weights of a head.

    A key matches a whole path, by `re.search` (Keras up to 3.13) as by `re.fullmatch` (later), in whatever model.
    """
    for path, place in head.class_axes().items():
        layout = () if place is None else (*[None] * place, axis)
        yield rf"\A(?:.*/)?{re.escape(f'{head.name}/{path}')}\Z", layout
