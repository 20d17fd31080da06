"""Features of all sets by pretrained networks, which the other `real` benchmarks read.

python -m benchmarks.real.features [--sets NAME ...] [--data FOLDER] [--cache FOLDER] [--backend ...]

Images are enlarged to 129 x 129 and go through EfficientNet-Lite0 (1,280 features, the mean over the image), texts
through MiniLM (384 features). The features are stored in the ignored cache, block by block, so an interrupted run
resumes. On two cores TensorFlow takes twenty minutes for 60,000 images, JAX and PyTorch several times as long.
"""

import pathlib

import numpy as np

from benchmarks.lib import experiments, harness
from benchmarks.real import data, weights

SIDE, BLOCK, BATCH = 129, 2048, 128  # 32 n + 1 pixels, see `weights.SIZE`
STORES = {"CIFAR-10N": "cifar10", "CIFAR-100N": "cifar100"}  # sets that share their pictures, by how a name begins

FOLDERS = {  # options of all experiments on sets
    "data": data.FOLDER,
    "cache": {"type": pathlib.Path, "default": weights.CACHE, "help": "folder of weights and features"},
}


def of(name, folder=data.FOLDER, cache=weights.CACHE, seed=0):
    """Returns the `Set` with features in place of its examples, float32 `(N, D)`.

    Args:
        name: key of `data.SETS`.
        folder: folder of the data.
        cache: folder of weights and features.
        seed: integer for random draws in the set.
    """
    dataset = data.read(name, folder, seed, pictures=False)
    if dataset.x.ndim == 2:  # LabelMe comes as features
        return dataset
    store = pathlib.Path(cache) / f"features-{store_of(name)}.npy"
    if not store.exists():
        compute(name, store, folder, cache)
    x = np.load(store, mmap_mode="r")
    count = len(dataset.x)
    if dataset.x.ndim == 1 and dataset.x.dtype.kind == "i":
        return dataset._replace(x=np.array(x[dataset.x]), x_test=np.array(x[dataset.x_test]))
    return dataset._replace(x=np.array(x[:count]), x_test=np.array(x[count:]))


def store_of(name):
    """Returns the name of the file with a set's features."""
    return next((store for start, store in STORES.items() if name.startswith(start)), name.lower().replace(" ", "-"))


def compute(name, store, folder, cache):
    """Writes the features of a set's training and test examples, block by block."""
    import keras

    dataset = data.read(name, folder)
    examples = np.concatenate([dataset.x, dataset.x_test])
    extract = text_features(cache) if examples.dtype.kind == "U" else image_features(cache)
    parts = pathlib.Path(cache) / f"{store.stem}-blocks"
    parts.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(examples), BLOCK)
    progress = keras.utils.Progbar(len(starts), unit_name="block")
    for number, start in enumerate(starts):
        path = parts / f"{number:05}.npy"
        if not path.exists():
            unfinished = path.with_suffix(".part.npy")
            np.save(unfinished, extract(examples[start : start + BLOCK]))
            unfinished.rename(path)
        progress.update(number + 1)
    np.save(store, np.concatenate([np.load(parts / f"{number:05}.npy") for number in range(len(starts))]))


def image_features(cache):
    """Returns a function from images of bytes, `(B, H, W)` or `(B, H, W, 3)`, to features, `(B, 1280)`."""
    import keras
    import keras_hub

    backbone = keras_hub.models.EfficientNetBackbone.from_preset(str(weights.efficientnet_lite0(cache)))
    pooled = keras.layers.GlobalAveragePooling2D()(backbone.output)
    model = keras.Model(backbone.input, pooled)

    def extract(x):
        x = np.repeat(x[..., None], 3, axis=-1) if x.ndim == 3 else x
        large = keras.ops.image.resize(x.astype("float32"), (SIDE, SIDE), interpolation="bicubic")
        return model.predict((keras.ops.convert_to_numpy(large) - 127.0) / 128.0, batch_size=BATCH, verbose=0)

    return extract


def text_features(cache):
    """Returns a function from texts to sentence vectors, `(B, 384)`, of length 1."""
    import keras_hub

    model = keras_hub.models.BertTextEmbedder.from_preset(str(weights.minilm(cache)))
    model.preprocessor.sequence_length = 64
    return lambda x: np.asarray(model.predict(list(map(str, x)), batch_size=BATCH, verbose=0))


def experiment(description, sets, quick=None, **options):
    """Returns the parser of an experiment on sets, see `experiments.parser_of`."""
    return experiments.parser_of(description, {"sets": tuple(sets), **FOLDERS, **options}, quick)


def main():
    """Computes the features of all sets, or of the named ones."""
    options = harness.parser_of(__doc__, sets=tuple(data.SETS), **FOLDERS).parse_args()
    for name in options.sets:
        dataset = of(name, options.data, options.cache)
        print(name, dataset.x.shape, dataset.x_test.shape)


if __name__ == "__main__":
    main()
