"""Small KerasHub classifiers with random weights and real preprocessing, and raw inputs for them."""

import keras_hub
import numpy as np

from tests.models.checks import UNITS

EXAMPLES = 16
WORDS = ["a", "the", "quick", "brown", "lazy", "fox", "dog", "jumped", "slept"]
VOCABULARY = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", *WORDS]
LABELS = np.random.default_rng(1).integers(UNITS, size=EXAMPLES)


def raw_images():
    return np.random.default_rng(0).integers(0, 256, size=(EXAMPLES, 32, 32, 3)).astype("uint8")


def raw_texts():
    rng = np.random.default_rng(0)
    return np.array([" ".join(rng.choice(WORDS, size=6)) for _ in range(EXAMPLES)])


def resnet(**head):
    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 128],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
        image_shape=(32, 32, 3),
    )
    converter = keras_hub.layers.ResNetImageConverter(image_size=(32, 32), scale=1 / 255)
    preprocessor = keras_hub.models.ResNetImageClassifierPreprocessor(converter)
    return keras_hub.models.ResNetImageClassifier(backbone, UNITS, preprocessor=preprocessor, **head)


def vit(**head):
    backbone = keras_hub.models.ViTBackbone((32, 32, 3), (8, 8), num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32)
    converter = keras_hub.layers.ViTImageConverter(image_size=(32, 32), scale=1 / 255)
    preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
    return keras_hub.models.ViTImageClassifier(backbone, UNITS, preprocessor=preprocessor, **head)


def vgg(**head):
    backbone = keras_hub.models.VGGBackbone(
        stackwise_num_repeats=[1, 1], stackwise_num_filters=[8, 16], image_shape=(32, 32, 3)
    )
    converter = keras_hub.layers.VGGImageConverter(image_size=(32, 32), scale=1 / 255)
    preprocessor = keras_hub.models.VGGImageClassifierPreprocessor(converter)
    return keras_hub.models.VGGImageClassifier(
        backbone, UNITS, preprocessor=preprocessor, pooling_hidden_dim=16, **head
    )


def bert(**head):
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=len(VOCABULARY),
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        max_sequence_length=12,
    )
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        keras_hub.models.BertTokenizer(VOCABULARY), sequence_length=12
    )
    return keras_hub.models.BertTextClassifier(backbone, UNITS, preprocessor=preprocessor, **head)


TASKS = {"ResNet": (resnet, raw_images), "ViT": (vit, raw_images), "VGG": (vgg, raw_images), "BERT": (bert, raw_texts)}
