"""Features that were learned under wrong labels, for other classes: with a head in pretraining, and with plain Dense.

python -m benchmarks.labels.transfer [--data NAME ...] [--seeds 5] [--output FOLDER] [--quick] [--render]
(on the backend of KERAS_BACKEND)

Some classes are the upstream task: 40% of their labels name the class that an example looks most like. Each way to
pretrain takes the temperature and the epoch with the best likelihood of noisy validation labels. Then the head is
replaced by a fresh Dense layer (`keras_het.homoscedastic(model, units=...)`) for the other classes, of which a few
clean examples are known. It trains alone (frozen), or everything trains (fine-tuned). No pretraining is the control.
Source of the question: Collier et al. 2021, section 4.2.

Results are JSON lines, one for each data set and seed, to which a later run adds what is missing.
"""

from typing import NamedTuple

import keras
import numpy as np
from scipy.special import log_softmax

from benchmarks.lib import harness, tasks
from benchmarks.lib.lines import completed, distinct, select, with_error
from benchmarks.lib.results import publish
from keras_het import covariances, homoscedastic
from keras_het.integrators import QuasiMonteCarlo
from keras_het.labels import corrupt, look_alike_transitions
from keras_het.layers import HeteroscedasticDense

NONE, DENSE = "no pretraining", "Dense"
HEADS = {"diagonal": covariances.Diagonal, "full": covariances.LowRank}
PRETRAINED = (DENSE, *HEADS)
TEMPERATURES = (1.5, 5.0, 15.0)
RATE, SHOTS = 0.4, (5, 20)  # wrong labels upstream; clean examples of a class downstream
BATCH, LEARNING_RATE, NODES = 128, 2e-3, 64
DOWNSTREAM = {"frozen": (100, 1e-2), "fine-tuned": (100, 1e-3)}  # epochs and learning rate of Adam


class Data(NamedTuple):
    """Clean examples, the classes upstream (the others are downstream), and how a trunk trains on them.

    examples: `tasks.Split`.
    upstream: class numbers.
    backbone: as that of `tasks.Task`.
    epochs: of pretraining.
    """

    examples: tasks.Split
    upstream: tuple[int, ...]
    backbone: object
    epochs: int


def digits(seed):
    """scikit-learn's digits: the three pairs of look-alikes upstream, the four others downstream."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return Data(tasks.Split(x.astype("float32") / 16.0, y), (1, 7, 3, 8, 4, 9), tasks.dense(128, 128), 60)


def images(seed):
    """Twenty drawn classes in pairs of look-alikes: seven pairs upstream, three downstream."""
    parts = tasks.images(0.0, seed)
    x, y = (np.concatenate([getattr(part, name) for part in parts[:3]]) for name in ("x", "y"))
    return Data(tasks.Split(x, y), tuple(range(14)), tasks.convolutional(), 10)


DATA = {"digits": digits, "images": images}


def parts(data, seed):
    """Noisy training and validation examples upstream, and clean examples downstream, with classes counted from 0."""
    x, y = data.examples
    above = np.isin(y, data.upstream)
    order = np.random.default_rng([seed, 7]).permutation(above.sum())
    up = _renumbered(x[above][order], y[above][order])
    rows = look_alike_transitions(up.x.reshape(len(up.y), -1), up.y, RATE)
    noisy, known = corrupt(up.y, rows, [seed, 8]), int(0.75 * len(up.y))
    train, validation = tasks.Split(up.x[:known], noisy[:known]), tasks.Split(up.x[known:], noisy[known:])
    return train, validation, _renumbered(x[~above], y[~above])


def _renumbered(x, y):
    return tasks.Split(x, np.unique(y, return_inverse=True)[1])


def pretrained(data, train, validation, method, seed, epochs):
    """The model of the temperature and epoch with the best noisy likelihood, and that temperature."""
    found = []
    for temperature in TEMPERATURES:
        model = _upstream(data, train, method, temperature, seed)
        best = keras.callbacks.EarlyStopping("val_loss", patience=epochs, restore_best_weights=True)
        model.fit(*train, batch_size=BATCH, epochs=epochs, validation_data=validation, callbacks=[best], verbose=0)
        found.append((float(best.best), temperature, model))
    loss, temperature, model = min(found, key=lambda each: each[0])
    return model, temperature, loss


def _upstream(data, train, method, temperature, seed):
    """A trunk, whose start depends on the seed alone, and a head, compiled."""
    keras.utils.set_random_seed(seed)
    units = int(train.y.max()) + 1
    layers = data.backbone(train.x.shape[1:], lambda: None)
    model = keras.Sequential([*layers, *_head(method, units, temperature)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
    return model


def _head(method, units, temperature):
    """The noise has the same seed in all runs, so that a compiled program serves all of them."""
    if method == DENSE:
        return [keras.layers.Dense(units), keras.layers.Rescaling(1 / temperature)]
    factors = {} if method == "diagonal" else {"num_factors": min(15, units)}
    covariance, nodes = HEADS[method](**factors), QuasiMonteCarlo(NODES)
    return [HeteroscedasticDense(units, covariance=covariance, temperature=temperature, integrator=nodes, seed=0)]


def for_other_classes(model, units, method, seed):
    """A copy of the trunk with a fresh Dense layer, whose start depends on the seed alone."""
    if method in HEADS:
        new = homoscedastic(model, units=units, clone=True, seed=seed)
    else:
        old = keras.Model(model.inputs[0], model.layers[-3].output)
        trunk = keras.models.clone_model(old)
        trunk.set_weights(old.get_weights())
        new = keras.Model(trunk.inputs[0], keras.layers.Dense(units)(trunk.outputs[0]))
    kernel, bias = new.layers[-1].get_weights()
    limit = np.sqrt(6 / sum(kernel.shape))
    start = np.random.default_rng([seed, 9]).uniform(-limit, limit, kernel.shape)
    new.layers[-1].set_weights([start.astype("float32"), np.zeros_like(bias)])
    return new


def downstream(model, way, few, rest, seed):
    """Accuracy and NLL on the rest, after training on the few by a way of `DOWNSTREAM`."""
    for layer in model.layers[:-1]:
        layer.trainable = way != "frozen"
    epochs, rate = DOWNSTREAM[way]
    keras.utils.set_random_seed(seed)  # the same order of examples after every pretraining
    model.compile(keras.optimizers.Adam(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(*few, batch_size=32, epochs=epochs, verbose=0)
    log_p = log_softmax(model.predict(rest.x, batch_size=1000, verbose=0).astype("float64"), axis=-1)
    return {
        "accuracy": float((log_p.argmax(-1) == rest.y).mean()),
        "NLL": float(-log_p[np.arange(len(rest.y)), rest.y].mean()),
    }


def few_and_rest(examples, shots, seed):
    """As many examples of each class as `shots`, and the others."""
    order = np.random.default_rng([seed, 10]).permutation(len(examples.y))
    chosen = np.concatenate([order[examples.y[order] == k][:shots] for k in np.unique(examples.y)])
    others = np.setdiff1d(order, chosen)
    return tasks.Split(examples.x[chosen], examples.y[chosen]), tasks.Split(examples.x[others], examples.y[others])


def rows(name, seed, epochs=None):
    """A line for each way to pretrain and to train downstream, and each number of clean examples."""
    data = DATA[name](seed)
    train, validation, other = parts(data, seed)
    units = int(other.y.max()) + 1
    for method in (NONE, *PRETRAINED):
        if method == NONE:
            model, temperature, loss = _upstream(data, train, DENSE, 1.0, seed), None, None
        else:
            model, temperature, loss = pretrained(data, train, validation, method, seed, epochs or data.epochs)
        for shots in SHOTS:
            few, rest = few_and_rest(other, shots, seed)
            for way in DOWNSTREAM:
                new = for_other_classes(model, units, method if method in HEADS else DENSE, seed)
                key = {"data": name, "seed": seed, "pretraining": method, "shots": shots, "way": way}
                choice = {"temperature": temperature, "noisy NLL": loss}
                yield {**key, **choice, **downstream(new, way, few, rest, seed)}
    keras.utils.clear_session()


def table(lines):
    """Accuracy downstream: of Dense in pretraining, and what the others add to it, seed by seed."""
    columns = [(shots, way) for shots in SHOTS for way in DOWNSTREAM]
    head = ["data", "pretraining", *(f"{shots} a class, {way}" for shots, way in columns), "temperatures"]
    found = [head]
    for data in distinct(lines, "data"):
        for number, method in enumerate((DENSE, *HEADS, NONE)):
            cells = [_cell(lines, method, data=data, shots=shots, way=way) for shots, way in columns]
            own = select(lines, data=data, pretraining=method, shots=SHOTS[0], way="frozen")
            chosen = "" if method == NONE else ", ".join(f"{line['temperature']:g}" for line in own)
            found.append([data if number == 0 else "", method, *cells, chosen])
    return found


def _cell(lines, method, **where):
    plain, own = ([line["accuracy"] for line in select(lines, pretraining=name, **where)] for name in (DENSE, method))
    if method == DENSE:
        return with_error(plain)
    text = with_error([a - b for a, b in zip(own, plain, strict=True)])
    return text if text.startswith("-") else f"+{text}"


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only show what the file has")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    seeds, epochs = (1, 2) if options.quick else (options.seeds, None)
    keys = [{"data": name, "seed": seed} for seed in range(0 if options.render else seeds) for name in options.data]
    lines = completed(options.output / "transfer.jsonl", keys, lambda name, seed: rows(name, seed, epochs))
    lines.sort(key=lambda line: (list(DATA).index(line["data"]), line["seed"]))
    publish(options.output, "transfer", {"accuracy downstream": table(lines)}, sorted(distinct(lines, "seed")))


if __name__ == "__main__":
    main()
