"""Models for the benchmark of `keras_het.parity`: small ones of KerasHub, heads, and large ones."""

import keras
import numpy as np
from keras import layers

import keras_het

CLASSES = 5


def compiled(model, optimizer="adam"):
    """Returns the model, compiled for integer classes with logits or log-probabilities."""
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def with_sgd(make):
    """Returns the model, trained by SGD. Adam on TensorFlow moves an Embedding too far if a token occurs twice."""
    return lambda: compiled(make(), "sgd")


# Small models of KerasHub, and large ones, with random weights.


def application(name, size):
    def make():
        kind = getattr(keras.applications, name)
        arguments = {"weights": None, "input_shape": (size, size, 3), "classes": CLASSES, "classifier_activation": None}
        return compiled(kind(**arguments))

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
GROUPED = {key: value for key, value in TEXT.items() if key != "num_heads"}
GROUPED |= {"num_query_heads": 4, "num_key_value_heads": 2}
VISION = {"image_shape": (32, 32, 3), "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
HUB = {
    "BERT": with_sgd(hub("Bert", "Text", **TEXT, max_sequence_length=32)),
    "GPT-2": with_sgd(hub("GPT2", **TEXT, max_sequence_length=32)),
    "Gemma": with_sgd(hub("Gemma", **GROUPED, head_dim=4)),
    "Mixtral": with_sgd(hub("Mixtral", **GROUPED, num_experts=2)),
    "ESM2": with_sgd(hub("ESM", **TEXT)),
    "ResNet": hub(
        "ResNet", "Image", input_conv_filters=[64], input_conv_kernel_sizes=[3], stackwise_num_filters=[64, 64],
        stackwise_num_blocks=[2, 2], stackwise_num_strides=[1, 2], block_type="basic_block", image_shape=(32, 32, 3),
    ),
    "ViT": hub("ViT", "Image", **VISION, mlp_dim=32),
}  # fmt: skip


LARGE_TEXT = {"vocabulary_size": 30522, "num_layers": 12, "num_heads": 12, "hidden_dim": 768, "intermediate_dim": 3072}
COST = {  # models whose time and memory are measured
    "one Dense layer": lambda: compiled(keras.Sequential([keras.Input((6,)), dense()])),
    "ResNet50, 224 x 224 pixels": application("ResNet50", 224),
    "BERT base (KerasHub), 32 tokens": with_sgd(hub("Bert", "Text", **LARGE_TEXT, max_sequence_length=512)),
}


def dense():
    return layers.Dense(CLASSES, name="logits")


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


def save(make, path):
    """Saves a model with fixed random weights, with the statistics of BatchNormalization, to a file."""
    keras.utils.set_random_seed(0)
    model = make()
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(rng.uniform(0.5, 2.0, weight.shape))
    model.save(path)
