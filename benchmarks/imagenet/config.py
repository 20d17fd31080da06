"""Settings of the paper's experiments, as named configurations.

Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Appendix B. The paper does not state the size of
the images of WebVision. It trains there asynchronously, with 64 images on each of 32 devices; here they are one batch.
An L2 of w adds w times the sum of squares, as in Keras.
"""

import dataclasses
import json

HEADS = ("dense", "diagonal", "full", "parameter-efficient")
SAMPLINGS = ("monte_carlo", "quasi_monte_carlo", "closed_form", "taylor")


@dataclasses.dataclass(frozen=True)
class Config:
    """One experiment.

    backbone: name of a class of `keras.applications`, or "tiny", for a dry run.
    size: side of the images in pixels.
    bicubic: boolean, whether images are resized bicubically instead of bilinearly.
    drops: epochs after which the learning rate is a tenth of what it was.
    warmup_epochs, warmup_steps: length of the linear rise of the learning rate, one of the two.
    l2: strength for all kernels except in the covariance.
    covariance_l2: strength for the kernels in the covariance.
    clip: largest norm of all gradients together; 0 does not clip.
    multilabel: boolean, whether an image can have several classes, which are measured by gAP.
    hidden: width of an additional layer before the head, or 0.
    sampling: integrator of the head, one of `SAMPLINGS`.
    """

    backbone: str = "ResNet152V2"
    size: int = 224
    bicubic: bool = False
    epochs: int = 90
    drops: tuple[int, ...] = (30, 60, 80)
    warmup_epochs: float = 0.0
    warmup_steps: int = 0
    rate: float = 0.1
    momentum: float = 0.9
    l2: float = 1e-3
    covariance_l2: float = 1e-3
    clip: float = 0.0
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
CONFIGS = {
    "ilsvrc12": Config(**LONG, warmup_epochs=5.0, samples=10_000),
    "webvision": Config(
        backbone="InceptionResNetV2",
        size=299,
        bicubic=True,
        epochs=95,
        drops=(40, 80),
        warmup_epochs=2.0,
        l2=4e-5,
        covariance_l2=4e-5,
        batch=32 * 64,
    ),
    "imagenet21k": Config(
        warmup_steps=5000,
        l2=3e-3,
        covariance_l2=1e-2,
        clip=1.0,
        multilabel=True,
        head="parameter-efficient",
        link="sigmoid",
        temperature=0.15,
        num_factors=50,
    ),
    "jft": Config(
        backbone="ResNet50V2",
        epochs=30,
        drops=(10, 20, 25),
        warmup_steps=5000,
        rate=0.03,
        clip=1.0,
        batch=4096,
        multilabel=True,
        head="parameter-efficient",
        link="sigmoid",
        temperature=0.15,
        num_factors=50,
    ),
}
SMALL = {"backbone": "tiny", "size": 16, "epochs": 3, "drops": (2,), "batch": 8, "samples": 8, "num_factors": 2}


def small(config):
    """Returns the same experiment for a dry run, which takes seconds and runs every part."""
    warmup = {"warmup_steps": min(config.warmup_steps, 4), "warmup_epochs": min(config.warmup_epochs, 1)}
    return dataclasses.replace(config, **SMALL, **warmup, hidden=min(config.hidden, 8))


def changed(config, overrides):
    """Returns a configuration with other values. A Dense head has the temperature 1, unless you set one.

    Raises ValueError for a name or a value that it cannot have.
    """
    known = {field.name: field for field in dataclasses.fields(Config)}
    for name, value in overrides.items():
        if name not in known:
            raise ValueError(f"`overrides` must name fields of the configuration. Received: {name}={value!r}")
        kind = type(getattr(config, name))
        if not isinstance(value, (float, int) if kind is float else kind) or (
            isinstance(value, bool) and kind is not bool
        ):
            raise ValueError(f"`{name}` must be of type {kind.__name__}. Received: {name}={value!r}")
    for name, choices in {"head": HEADS, "sampling": SAMPLINGS, "link": ("softmax", "sigmoid")}.items():
        if overrides.get(name, choices[0]) not in choices:
            raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={overrides[name]!r}")
    plain = {"temperature": 1.0} if overrides.get("head") == "dense" else {}
    result = dataclasses.replace(config, **{**plain, **overrides})
    if result.multilabel and result.link == "softmax":
        raise ValueError("`link` must be 'sigmoid' for images of several classes. Received: link='softmax'")
    return result


def read_override(text):
    """Returns `name=value` as a pair. The value is JSON, or a word."""
    name, _, value = text.partition("=")
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        parsed = value
    return name, tuple(parsed) if isinstance(parsed, list) else parsed
