"""Models and layers for the benchmark of `keras_het.parity`: architectures, ordinary layers, and planted faults."""

import keras
import numpy as np
from keras import layers, ops

import keras_het

CLASSES = 5


def compiled(model, optimizer="adam"):
    """Returns the model, compiled for integer classes with logits or log-probabilities."""
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def with_sgd(make):
    """Returns the model, trained by SGD. Adam on TensorFlow moves an Embedding too far if a token occurs twice."""
    return lambda: compiled(make(), "sgd")


# Architectures, with random weights.


def application(name, size=32, **options):
    def make():
        kind = getattr(keras.applications, name)
        arguments = {"weights": None, "input_shape": (size, size, 3), "classes": CLASSES, "classifier_activation": None}
        return compiled(kind(**arguments, **options))

    return make


def hub(name, classifier=None, **options):
    """Returns a classifier of KerasHub, or a backbone with a Dense layer at its first token."""

    def make():
        import keras_hub

        backbone = getattr(keras_hub.models, f"{name}Backbone")(**options)
        if classifier:
            kind = getattr(keras_hub.models, f"{name}{classifier}Classifier")
            extra = {"activation": None} if classifier == "Image" else {}
            task = kind(backbone=backbone, num_classes=CLASSES, preprocessor=None, **extra)
            return compiled(keras.Model(task.inputs, task.outputs, name=task.name))
        outputs = backbone.output
        tokens = outputs["sequence_output"] if isinstance(outputs, dict) else outputs
        return compiled(keras.Model(backbone.inputs, layers.Dense(CLASSES, name="logits")(tokens[:, 0])))

    return make


TEXT = {"vocabulary_size": 50, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
TUNED_ON = {  # on these the factor of the limit was chosen
    "MobileNetV2": application("MobileNetV2"),
    "ResNet50V2": application("ResNet50V2"),
    "Xception": application("Xception", 71),
    "BERT (KerasHub)": hub("Bert", "Text", **TEXT, max_sequence_length=32),
    "ALBERT (KerasHub)": hub("Albert", "Text", **TEXT, embedding_dim=8, max_sequence_length=32),
    "ResNet (KerasHub)": hub(
        "ResNet", "Image", input_conv_filters=[64], input_conv_kernel_sizes=[3], stackwise_num_filters=[64, 64],
        stackwise_num_blocks=[2, 2], stackwise_num_strides=[1, 2], block_type="basic_block", image_shape=(32, 32, 3),
    ),
}  # fmt: skip
FROZEN_ON = {  # on these the factor was tried unchanged; their differences led to float64 on every backend
    "EfficientNetV2B0": application("EfficientNetV2B0"),
    "DenseNet121": application("DenseNet121"),
    "ConvNeXtTiny": application("ConvNeXtTiny"),
    "NASNetMobile": application("NASNetMobile"),
    "DistilBERT (KerasHub)": hub("DistilBert", "Text", **TEXT, max_sequence_length=32),
    "ViT (KerasHub)": hub(
        "ViT", "Image", image_shape=(32, 32, 3), patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32
    ),
}

FRESH_ON = {  # on these the rule with float64 was tried unchanged
    "ResNet50": application("ResNet50"),
    "MobileNetV3Small": application("MobileNetV3Small"),
    "InceptionV3": application("InceptionV3", 75),
    "EfficientNetB0": application("EfficientNetB0"),
    "RoBERTa (KerasHub), SGD": with_sgd(hub("Roberta", "Text", **TEXT, max_sequence_length=32)),
}

TEXT_BY_SGD = {f"{name}, SGD": with_sgd(make) for name, make in (TUNED_ON | FROZEN_ON).items() if "BERT" in name}


LARGE_TEXT = {"vocabulary_size": 30522, "num_layers": 12, "num_heads": 12, "hidden_dim": 768, "intermediate_dim": 3072}
LARGE = {  # whose time and memory are measured
    "one Dense layer": lambda: compiled(keras.Sequential([keras.Input((6,)), dense()])),
    "ResNet50, 224 x 224 pixels": application("ResNet50", 224),
    "BERT base (KerasHub), 32 tokens": with_sgd(hub("Bert", "Text", **LARGE_TEXT, max_sequence_length=512)),
}


# Ordinary layers.


def sequential(*stack, shape, optimizer=True):
    def make():
        model = keras.Sequential([keras.Input(shape), *(make_layer() for make_layer in stack)])
        return compiled(model) if optimizer else model

    return make


def dense():
    return layers.Dense(CLASSES, name="logits")


def pool():
    return layers.GlobalAveragePooling2D()


def conv(kind, **options):
    return lambda: getattr(layers, kind)(6, **options)


IMAGE = (13, 12, 3)
LAYERS = {
    "LSTM with dropout": sequential(lambda: layers.LSTM(8, dropout=0.3, recurrent_dropout=0.2), dense, shape=(9, 4)),
    "GRU, both directions": sequential(lambda: layers.Bidirectional(layers.GRU(6)), dense, shape=(9, 4)),
    "Conv2D, even kernel, same": sequential(
        conv("Conv2D", kernel_size=4, padding="same"), conv("Conv2D", kernel_size=2, padding="same", strides=2),
        pool, dense, shape=IMAGE,
    ),
    "Conv2D, dilation": sequential(
        conv("Conv2D", kernel_size=3, padding="same", dilation_rate=2), conv("Conv2D", kernel_size=2, dilation_rate=3),
        pool, dense, shape=IMAGE,
    ),
    "Conv2DTranspose, even kernel": sequential(
        conv("Conv2DTranspose", kernel_size=4, strides=2, padding="same"), pool, dense, shape=IMAGE
    ),
    "separable, depthwise": sequential(
        conv("SeparableConv2D", kernel_size=4, padding="same"),
        lambda: layers.DepthwiseConv2D(4, strides=2, padding="same"), pool, dense, shape=IMAGE,
    ),
    "pooling, same": sequential(
        lambda: layers.MaxPooling2D(3, 2, "same"), lambda: layers.AveragePooling2D(2, 2, "same"),
        lambda: layers.UpSampling2D(2, interpolation="bilinear"), pool, dense, shape=IMAGE,
    ),
    "normalisation": sequential(
        conv("Conv2D", kernel_size=3), layers.BatchNormalization, lambda: layers.GroupNormalization(2),
        layers.LayerNormalization, pool, dense, shape=IMAGE,
    ),
    "not compiled, Dropout": sequential(
        lambda: layers.Dense(8, "gelu"), lambda: layers.Dropout(0.5), dense, shape=(6,), optimizer=False
    ),
    "Embedding with a mask, attention": lambda: compiled(attention(), "sgd"),
    "inputs by name": lambda: compiled(named_inputs(), "sgd"),
    "mixed_bfloat16": lambda: compiled(half()),
}  # fmt: skip


def attention():
    inputs = keras.Input((7,), dtype="int32", name="tokens")
    x = layers.Embedding(11, 8, mask_zero=True)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    return keras.Model(inputs, dense()(layers.GlobalAveragePooling1D()(x)))


def named_inputs():
    inputs = {"image": keras.Input((8, 8, 1), name="image"), "tags": keras.Input((3,), dtype="int32", name="tags")}
    image = layers.Flatten()(layers.Conv2D(2, 3)(inputs["image"]))
    tags = layers.Flatten()(layers.Embedding(6, 2)(inputs["tags"]))
    return keras.Model(inputs, dense()(layers.Concatenate()([image, tags])))


def half():
    stack = [keras.Input((6,)), layers.Dense(16, "relu", dtype="mixed_bfloat16"), keras.layers.Dense(CLASSES)]
    return keras.Sequential(stack)


def head(**options):
    """Returns a small network with a head of this package."""

    def make():
        inputs = keras.Input((6,))
        x = layers.Dropout(0.2)(layers.Dense(16, "relu")(inputs))
        options_ = {"num_factors": 2, **options}
        outputs = keras_het.layers.HeteroscedasticDense(CLASSES, **options_, seed=0, name="head")(x)
        return compiled(keras.Model(inputs, outputs))

    return make


HEADS = {
    "full head": head(),
    "parameter-efficient head": head(parameter_efficient=True),
    "diagonal head": head(num_factors=0),
    "narrow head": head(num_factors=None, covariance=keras_het.covariances.Narrow(2, width=3)),
    "latent head": head(num_factors=None, covariance=keras_het.covariances.Latent(2)),
}


# Planted faults, each on PyTorch alone or in every process.


def on_torch():
    return keras.config.backend() == "torch"


@keras.saving.register_keras_serializable("planted")
class Branches(layers.Layer):
    """Layer that computes something else on one backend."""

    def call(self, x):
        return ops.relu(x) if on_torch() else ops.elu(x)


@keras.saving.register_keras_serializable("planted")
class OtherEpsilon(layers.Layer):
    """Layer that normalises with another epsilon on one backend."""

    def call(self, x):
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        return x / ops.sqrt(variance + (1e-3 if on_torch() else 1e-5))


@keras.saving.register_keras_serializable("planted")
class Unsteady(layers.Layer):
    """Layer that returns other numbers at every call, also at inference."""

    def __init__(self, **options):
        super().__init__(**options)
        self.generator = keras.random.SeedGenerator(0)

    def call(self, x):
        return x + 1e-3 * keras.random.normal(ops.shape(x), seed=self.generator)


@keras.saving.register_keras_serializable("planted")
class ForgetsAWeight(layers.Dense):
    """Layer that does not save its bias."""

    def save_own_variables(self, store):
        store["0"] = self.kernel

    def load_own_variables(self, store):
        self.kernel.assign(store["0"])


@keras.saving.register_keras_serializable("planted")
class OtherPadding(layers.Layer):
    """Layer that pads on the other side on one backend."""

    def call(self, x):
        before, after = (0, 1) if on_torch() else (1, 0)
        return ops.pad(x, [[0, 0], [before, after], [0, 0], [0, 0]])


@keras.saving.register_keras_serializable("planted")
class NoGradient(layers.Layer):
    """Layer that stops the gradient on one backend."""

    def call(self, x):
        return ops.stop_gradient(x) if on_torch() else x


@keras.saving.register_keras_serializable("planted")
class OtherDtype(layers.Layer):
    """Layer that returns another dtype on one backend."""

    def call(self, x):
        return ops.cast(x, "float16") if on_torch() else x


@keras.saving.register_keras_serializable("planted")
class NotOnTorch(layers.Layer):
    """Layer that does not train on one backend."""

    def call(self, x, training=False):
        if training and on_torch():
            raise NotImplementedError("no such operation")
        return x


def with_fault(kind, shape=(6,)):
    """Returns a model with a faulty layer between two sound ones."""

    def make():
        first = layers.Conv2D(4, 3, name="before") if len(shape) == 3 else layers.Dense(8, name="before")
        last = [pool(), dense()] if len(shape) == 3 else [dense()]
        return compiled(keras.Sequential([keras.Input(shape), first, kind(), *last]))

    return make


FAULTS = {  # the model, and words of the result that name the fault
    "branches on the backend": (with_fault(lambda: Branches(name="fault")), "`fault (Branches)`"),
    "another epsilon": (with_fault(lambda: OtherEpsilon(name="fault")), "`fault (OtherEpsilon)`"),
    "not deterministic": (with_fault(lambda: Unsteady(name="fault")), "(Unsteady)` returns different outputs"),
    "a weight that is not saved": (with_fault(lambda: ForgetsAWeight(8, name="fault")), "fault/bias"),
    "another padding": (with_fault(lambda: OtherPadding(name="fault"), IMAGE), "`fault (OtherPadding)`"),
    "no gradient": (with_fault(lambda: NoGradient(name="fault")), "`before/"),
    "another dtype": (with_fault(lambda: OtherDtype(name="fault")), "`fault (OtherDtype)`"),
    "cannot train": (with_fault(lambda: NotOnTorch(name="fault")), "on torch: NotImplementedError"),
}


def save(make, path):
    """Saves a model with fixed random weights, with the statistics of BatchNormalization, to a file."""
    keras.utils.set_random_seed(0)
    model = make()
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(rng.uniform(0.5, 2.0, weight.shape))
    model.save(path)
