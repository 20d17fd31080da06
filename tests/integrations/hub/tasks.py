"""Small KerasHub classifiers with random weights and real preprocessing, and raw inputs for them."""

import keras_hub
import numpy as np
from keras_hub import models

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


def image_classifier(kind, backbone, **head):
    converter = getattr(keras_hub.layers, f"{kind}ImageConverter")(image_size=(32, 32), scale=1 / 255)
    preprocessor = getattr(models, f"{kind}ImageClassifierPreprocessor")(converter)
    return getattr(models, f"{kind}ImageClassifier")(backbone, UNITS, preprocessor=preprocessor, **head)


def resnet(**head):
    sizes = [64], [3], [64, 128], [1, 1], [1, 2]
    return image_classifier("ResNet", models.ResNetBackbone(*sizes, "basic_block", image_shape=(32, 32, 3)), **head)


def vit(**head):
    backbone = models.ViTBackbone((32, 32, 3), (8, 8), num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32)
    return image_classifier("ViT", backbone, **head)


def vgg(**head):
    backbone = models.VGGBackbone([1, 1], [8, 16], image_shape=(32, 32, 3))
    return image_classifier("VGG", backbone, pooling_hidden_dim=16, **head)


def bert(**head):
    backbone = models.BertBackbone(len(VOCABULARY), 2, 2, 16, 32, max_sequence_length=12)
    tokenizer = models.BertTokenizer(VOCABULARY)
    preprocessor = models.BertTextClassifierPreprocessor(tokenizer, sequence_length=12)
    return models.BertTextClassifier(backbone, UNITS, preprocessor=preprocessor, **head)


TASKS = {"ResNet": (resnet, raw_images), "ViT": (vit, raw_images), "VGG": (vgg, raw_images), "BERT": (bert, raw_texts)}
