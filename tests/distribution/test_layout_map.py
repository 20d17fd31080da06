"""The layout of a head's weights: exact keys, whole classes for every device, and what is refused."""

import re

import keras
import numpy as np
import pytest

from keras_het import covariances, layers
from keras_het.distribution import layout_map
from keras_het.layers.noisy_dense import NoisyDense
from tests.common import StopError, refuses

BACKEND = keras.config.backend()
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution splits weights on JAX alone")
KINDS = {
    "diagonal": lambda units: layers.HeteroscedasticDense(units, 0, name="head"),
    "full": lambda units: layers.HeteroscedasticDense(units, 3, name="head"),
    "narrow": lambda units: layers.HeteroscedasticDense(units, covariance=covariances.Narrow(3, 2), name="head"),
    "parameter-efficient": lambda units: layers.HeteroscedasticDense(units, 3, parameter_efficient=True, name="head"),
    "latent": lambda units: layers.HeteroscedasticDense(units, covariance=covariances.Latent(3), name="head"),
    "own name":
        lambda units: layers.HeteroscedasticDense(units, covariance=covariances.LowRank(3, name="noise"), name="head"),
    "no bias": lambda units: layers.HeteroscedasticDense(units, 3, use_bias=False, name="head"),
    "label vectors": lambda units: layers.JointHeteroscedasticDense(units, 3, name="head"),
    "pixels": lambda units: layers.StochasticSegmentation(units, 3, name="head"),
    "targets": lambda units: layers.HeteroscedasticNormal(units, 3, name="head"),
}  # fmt: skip


def mesh_of(*shape, names=("batch", "model")):
    return keras.distribution.DeviceMesh(shape, names, [f"cpu:{number}" for number in range(np.prod(shape))])


def in_model(head):
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, name="features"), head])


class Wider(covariances.Diagonal):
    def make_maps(self, start, input_shape):
        self.more = self.add_weight(name="more", shape=(self.units,))


@on_jax
@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_is_split_on_the_axis_that_grows_with_the_classes(kind):
    """By one key, with either rule of Keras, before the head is built as afterwards."""
    models = [in_model(KINDS[kind](units)) for units in (8, 16)]
    layouts = [layout_map(KINDS[kind](8), mesh_of(1, 4)), layout_map(models[0], mesh_of(1, 4))]
    assert list(layouts[0]) == list(layouts[1])
    for weight, larger in zip(*(model.weights for model in models), strict=True):
        grows = [axis for axis, size in enumerate(weight.shape) if larger.shape[axis] == 2 * size]
        of_head = weight.path.split("/")[1] == "head"
        for match in (re.search, re.fullmatch):
            assert len([key for key in layouts[0] if match(key, weight.path)]) == of_head
        if of_head:
            axes = layouts[0][weight.path].axes
            assert [axis for axis, name in enumerate(axes) if name == "model"] == grows
            assert set(axes) <= {None, "model"}


@on_jax
def test_a_device_has_whole_classes():
    """The entries of a class stand side by side on an axis of K R: a quarter of it has a quarter of the classes."""
    head = KINDS["full"](8)
    head.build((None, 5))
    whole = head.covariance.factor_weights()[-1]
    quarters = np.split(keras.ops.convert_to_numpy(head.covariance.factor_layer.bias), 4)
    np.testing.assert_allclose(quarters[1].reshape(2, 3) / np.sqrt(3), whole[2:4], rtol=1e-6)


@on_jax
def test_a_key_matches_no_other_name():
    layout = layout_map(layers.HeteroscedasticDense(8, 3, name="my.head"), mesh_of(1, 4))
    assert layout["my.head/loc/kernel"].axes == layout["outer/my.head/loc/kernel"].axes == (None, "model")
    for path in ("my_head/loc/kernel", "not_my.head/loc/kernel", "my.head_2/loc/kernel", "my.head/loc/kernel_2/x"):
        assert layout[path] is None
    assert layout["features/kernel"] is layout["my.head/output"] is layout["my.head/loc/output"] is None
    layout[".*features/kernel"] = (None, "model")
    assert layout["model/features/kernel"].axes == (None, "model")


@on_jax
def test_a_weight_that_nothing_names_is_refused():
    head = layers.HeteroscedasticDense(8, covariance=Wider(), name="head")
    with refuses("an entry for each weight of a head: call layout_map again, .* 'other/covariance/scale_diag/kernel'"):
        layout_map(head, mesh_of(1, 4))["other/covariance/scale_diag/kernel"]  # which Keras would replicate
    with refuses("must name every weight of the head. Received: without '.*head/covariance/more'"):
        layout_map(in_model(head), mesh_of(1, 4))


@on_jax
@pytest.mark.parametrize(("model", "mesh", "text"), [
    (lambda: KINDS["full"](10), lambda: mesh_of(1, 2, names=("batch", "x")),
     r"`axis` must be an axis of the mesh, \['batch', 'x'\]. Received: axis='model'"),
    (lambda: in_model(KINDS["full"](10)), lambda: mesh_of(2, 4),
     "`units` must be divisible by the 4 devices that share the classes: use 12, .* Received: units=10"),
    (lambda: keras.layers.Dense(4, name="plain"), lambda: mesh_of(1, 4),
     "`model` must have a head of keras_het. Received: 'plain', which has none"),
    (lambda: [1], lambda: mesh_of(1, 4), "`model` must be a model or a layer of Keras. Received: a list"),
    (lambda: KINDS["full"](8), lambda: (1, 4), "`mesh` must be a keras.distribution.DeviceMesh. Received: a tuple"),
])  # fmt: skip
def test_refusals(model, mesh, text):
    with refuses(text):
        layout_map(model(), mesh())


@on_jax
def test_heads_of_one_name_must_have_one_layout():
    def two(*kinds):
        inputs = keras.Input((5,))
        heads = [layers.HeteroscedasticDense(8, covariance=each, name="head") for each in kinds]
        parts = [keras.Sequential([keras.Input((5,)), head], name=name) for name, head in zip("ab", heads, strict=True)]
        return keras.Model(inputs, [part(inputs) for part in parts])

    layout = layout_map(two(covariances.LowRank(2), covariances.LowRank(2)), mesh_of(1, 4))
    assert layout["a/head/loc/bias"].axes == ("model",)
    for other in (covariances.Latent(2), covariances.ParameterEfficient(2)):
        with refuses("must have different names if their covariances differ, .* several heads of the name 'head'"):
            layout_map(two(covariances.LowRank(2), other), mesh_of(1, 4))


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has it")
def test_another_backend_is_refused_and_told_what_to_use():
    instead = {"tensorflow": "tf.distribute.MirroredStrategy", "torch": "torch.nn.parallel.DistributedDataParallel"}
    text = rf"The backend must be JAX, .*{instead[BACKEND]}.* Received: the backend '{BACKEND}'"
    with pytest.raises(ValueError, match=text):
        layout_map(KINDS["full"](8), mesh_of(1, 4))


@on_jax
def test_devices_that_share_the_classes_may_have_more_weights_together(monkeypatch):
    check_build = NoisyDense.check_build

    def check_alone(self, input_shape):
        check_build(self, input_shape)
        raise StopError  # no weight is made, for these devices are not there

    monkeypatch.setattr(NoisyDense, "check_build", check_alone)
    classes = layers.HeteroscedasticDense(200_000, 20, integrator="Taylor", name="head"), 1049  # 17.2 GiB
    features = layers.HeteroscedasticDense(10_000, covariance=covariances.Latent(20), name="head"), 15_000
    nothing = keras.distribution.LayoutMap(mesh_of(1, 4))
    only_scale = keras.distribution.LayoutMap(mesh_of(1, 4))
    only_scale[".*scale_diag/kernel"] = (None, "model")
    within = []
    for head, size in (classes, features):
        for layout in (nothing, layout_map(head, mesh_of(1, 4)), only_scale):
            scope = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope()
            with scope, pytest.raises((StopError, ValueError)) as found:
                head.build((None, size))
            within.append(found.type is StopError)
            assert found.type is StopError or "at most 16 GiB on each device, but would have 1" in str(found.value)
    assert within == [False, True, False, False, False, False]
