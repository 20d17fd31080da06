"""Settings of the paper's experiments, as named configurations.

Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Appendix B. The paper does not state the size of
the images of WebVision. It trains there asynchronously, with 64 images on each of 32 devices; here they are one batch.
Its warm-up on ImageNet-21k has 5,000 steps. An L2 of w adds w times the sum of squares, as in Keras.
"""

import dataclasses
import json

from PIL import Image

BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


@dataclasses.dataclass(frozen=True)
class Config:
    """One experiment.

    backbone: name of a class of `keras.applications`, or "tiny", for a dry run.
    size: side of the images in pixels.
    drops: epochs after which the learning rate is a tenth of what it was.
    warmup: length in epochs of the linear rise of the learning rate.
    l2: strength for all kernels except in the covariance.
    covariance_l2: strength for the kernels in the covariance.
    clip: largest norm of all gradients together; None does not clip.
    multilabel: boolean, whether an image can have several classes, which are measured by gAP.
    hidden: width of an additional layer before the head, or 0.
    head: "dense", "diagonal", "full" or "parameter-efficient".
    link, temperature: "softmax" or "sigmoid", and the divisor of the logits of a head; `Dense` has none.
    sampling: integrator of the head, "monte_carlo", "quasi_monte_carlo" or "taylor".
    """

    backbone: str = "ResNet152V2"
    size: int = 224
    interpolation: Image.Resampling = BILINEAR
    epochs: int = 90
    drops: tuple[int, ...] = (30, 60, 80)
    warmup: float = 5.0
    rate: float = 0.1
    momentum: float = 0.9
    l2: float = 1e-3
    covariance_l2: float = 1e-3
    clip: float | None = None
    batch: int = 1024
    multilabel: bool = False
    hidden: int = 0
    head: str = "full"
    link: str = "softmax"
    temperature: float = 0.9
    num_factors: int = 15
    sampling: str = "monte_carlo"
    samples: int = 1000


LONG = {"epochs": 270, "drops": (90, 180, 240)}  # longer training of the paper on ILSVRC12
WEBVISION = {"backbone": "InceptionResNetV2", "size": 299, "interpolation": BICUBIC, "batch": 32 * 64}
IMAGENET21K = {"multilabel": True, "head": "parameter-efficient", "link": "sigmoid", "num_factors": 50}
CONFIGS = {
    "ilsvrc12": Config(**LONG, samples=10_000),
    "webvision": Config(**WEBVISION, epochs=95, drops=(40, 80), warmup=2.0, l2=4e-5, covariance_l2=4e-5),
    "imagenet21k": Config(**IMAGENET21K, temperature=0.15, warmup=0.4, l2=3e-3, covariance_l2=1e-2, clip=1.0),
}
SMALL = {"backbone": "tiny", "size": 16, "epochs": 3, "drops": (2,), "batch": 8, "samples": 8, "num_factors": 2}


def small(config):
    """Returns the same experiment for a dry run, which takes seconds and runs every part."""
    return dataclasses.replace(config, **SMALL, warmup=min(config.warmup, 1.0), hidden=min(config.hidden, 8))


def changed(config, **overrides):
    """Returns a configuration with other values. Raises ValueError for images of several classes with a softmax."""
    result = dataclasses.replace(config, **overrides)
    if result.multilabel and result.link == "softmax":
        raise ValueError("`link` must be 'sigmoid' for images of several classes. Received: link='softmax'")
    return result


def read_override(text):
    """Returns `name=value` as a pair. The value is JSON, or a word."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
