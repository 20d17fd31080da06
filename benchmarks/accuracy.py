"""How many nodes? What they buy, and what they cost, in training and at inference.

python benchmarks/accuracy.py [--quick] [--output FOLDER]              (on the backend that KERAS_BACKEND names)

The task: K classes in groups of five look-alikes; a label is flipped to another class of its group with probability 0.4. A small
network with the full head is trained with S nodes, twice: equal weights at the start, equal batches, other noise. How far the two end
up from each other is the *training noise*. The error of a prediction is the distance of its log p from that of the same weights at
2^13 nodes. Both are root mean squares weighted by p, over clean test data.

The first table needs no training: the error of log p of one draw of the default number of nodes, against 2^17 of Monte Carlo, over
examples with mu ~ 2 N(0, 1), d = sd and rows of V of length sd, all in units of the temperature.
"""

import json
import time

import harness
import keras
import numpy as np
from keras import ops

from keras_het.integrators import MonteCarlo, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import log_expected_softmax
from keras_het.ops.nodes import Nodes

FULL = {"K": 1000, "R": 15, "D": 64, "examples": 20_000, "epochs": 2, "samples": [16, 64, 256, 1024]}
QUICK = {"K": 50, "R": 5, "D": 16, "examples": 2000, "epochs": 1, "samples": [16, 64]}
GROUP, FLIPPED, BATCH, TEST, TEMPERATURE = 5, 0.4, 128, 512, 1.5
INFERENCE = [16, 32, 64, 128, 256, 512, 1024]
DEVIATIONS, EXAMPLES, DRAWS = [0.5, 1.0, 2.0], 4, 16
REFERENCE, DEFAULT = 1 << 13, QuasiMonteCarlo().num_samples


class Bfloat16Nodes(QuasiMonteCarlo):
    """Nodes that are stored in half of the memory."""

    def draw(self, *args, **kwargs):
        """As `QuasiMonteCarlo`, rounded."""
        drawn = (x.view("uint32") for x in super().draw(*args, **kwargs))  # NumPy arrays, at inference
        return Nodes(*(((x + 0x7FFF + (x >> 16 & 1)) & 0xFFFF0000).astype("uint32").view("float32") for x in drawn))  # to nearest even


def make_data(K, D, examples, flipped, seed):
    """Features, labels of which a share is flipped within its group, and nothing else that depends on `seed`."""
    rng = np.random.default_rng(0)
    centers = (rng.normal(size=(K // GROUP, 1, D)) + 0.5 * rng.normal(size=(K // GROUP, GROUP, D))).reshape(K, D)
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=examples)
    x = (centers[y] + 0.7 * rng.normal(size=(examples, D))).astype("float32")
    other = y // GROUP * GROUP + (y + rng.integers(1, GROUP, size=examples)) % GROUP
    return x, np.where(rng.random(examples) < flipped, other, y)


def train(sizes, num_samples, seed):
    """A model, and milliseconds of a step in its last epoch, which does not compile."""
    x, y = make_data(sizes["K"], sizes["D"], sizes["examples"], FLIPPED, seed=1)
    keras.utils.set_random_seed(0)
    head = HeteroscedasticDense(sizes["K"], sizes["R"], temperature=TEMPERATURE, integrator=QuasiMonteCarlo(num_samples), seed=seed)
    model = keras.Sequential([keras.Input((sizes["D"],)), keras.layers.Dense(256, activation="relu"), head])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-3), loss, jit_compile=keras.config.backend() != "torch")
    model.train_on_batch(x[:BATCH], y[:BATCH])
    start = time.perf_counter()
    model.fit(x, y, batch_size=BATCH, epochs=sizes["epochs"], verbose=0)
    return model, (time.perf_counter() - start) / (sizes["epochs"] * -(-len(x) // BATCH))


def predictor(model, integrator):
    """A compiled function from a batch of inputs to log p, NumPy."""
    hidden, head = model.layers

    def log_p(x):
        normal = head.logit_distribution(hidden(x))
        return integrator.integrate("softmax", normal, head.temperature, (head.units, head.num_factors))

    return harness.compiled(log_p)


def predict(model, integrator, x):
    function = predictor(model, integrator)
    return np.concatenate([function(ops.convert_to_tensor(x[i : i + BATCH])) for i in range(0, len(x), BATCH)])


def distance(log_p, reference):
    return float(np.sqrt(np.mean(np.sum(np.exp(reference) * (log_p - reference) ** 2, axis=-1))))


def nll(log_p, y):
    return float(-np.mean(log_p[np.arange(len(y)), y]))


def relative_noise(model, x):
    """Root mean square standard deviation of the logits, in units of the temperature."""
    hidden, head = model.layers
    return float(ops.sqrt(ops.mean(head.logit_distribution(hidden(x[:BATCH])).variance()))) / TEMPERATURE


def rule_table(sizes):
    """A row for each number of classes and factors and size of the noise: errors of log p with the default number of nodes."""
    rows = []
    for units, num_factors in [(10, 5), (100, 15), (100, 0), (sizes["K"], sizes["R"]), (sizes["K"], 0)]:
        for deviation in DEVIATIONS:
            rng = np.random.default_rng(units)
            mu, factor = 2 * rng.normal(size=(EXAMPLES, units)), rng.normal(size=(EXAMPLES, units, num_factors))
            factor = deviation * factor / np.linalg.norm(factor, axis=-1, keepdims=True) if num_factors else None
            arrays = (mu, np.full_like(mu, deviation), factor)
            tensors = [x if x is None else ops.convert_to_tensor(x.astype("float32")) for x in arrays]
            log_p = harness.compiled(lambda *eps, tensors=tensors: log_expected_softmax(*tensors, Nodes(*eps)))

            def draws(rule, num_samples, seed, log_p=log_p, size=(units, num_factors)):
                nodes = (rule.draw((seed, step), num_samples, *size, np) for step in range(DRAWS))
                return np.stack([log_p(*map(ops.convert_to_tensor, eps)) for eps in nodes])

            expected = np.log(np.exp(draws(MonteCarlo(), REFERENCE, seed=8)).mean(axis=0))
            errors = [distance(draws(rule, DEFAULT, seed=7), expected) for rule in (MonteCarlo(), QuasiMonteCarlo())]
            rows.append({"K": units, "R": num_factors, "sd": deviation, "Monte Carlo": errors[0], "quasi-Monte Carlo": errors[1]})
            print(rows[-1], flush=True)
    return rows


def training_table(sizes, x, y):
    """A row for each S of training, and the first model that was trained with the default S (or the last)."""
    rows, chosen = [], None
    for num_samples in sizes["samples"]:
        (first, seconds), (second, _) = (train(sizes, num_samples, seed) for seed in (1, 2))
        log_p, other = (predict(model, QuasiMonteCarlo(REFERENCE), x) for model in (first, second))
        if num_samples <= DEFAULT:
            chosen = first
        rows.append(
            {
                "S": num_samples,
                "NLL": (nll(log_p, y) + nll(other, y)) / 2,
                "accuracy": float(np.mean([log_p.argmax(-1) == y, other.argmax(-1) == y])),
                "training noise": distance(other, log_p),
                "sd / temperature": relative_noise(first, x),
                "ms per step": 1e3 * seconds,
            }
        )
        print(rows[-1], flush=True)
    return rows, chosen


def inference_table(model, x, y, repeats):
    """A row for each S of inference."""
    expected, batch = predict(model, QuasiMonteCarlo(REFERENCE), x), ops.convert_to_tensor(x[:BATCH])
    rules = {str(s): QuasiMonteCarlo(s) for s in INFERENCE} | {f"{DEFAULT}, in bfloat16": Bfloat16Nodes(DEFAULT)}
    functions = {name: predictor(model, rule) for name, rule in rules.items()}
    timings = harness.measure({name: lambda f=function: f(batch) for name, function in functions.items()}, repeats)
    found = {name: predict(model, rule, x) for name, rule in rules.items()}
    rounding = distance(found[f"{DEFAULT}, in bfloat16"], found[str(DEFAULT)])
    return [
        {"S": name, "error": distance(log_p, expected), "NLL": nll(log_p, y), "ms per batch": 1e3 * timings[name].median}
        for name, log_p in found.items()
    ], rounding


def table(rows):
    return harness.markdown([list(rows[0]), *([f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows)])


def main():
    options = harness.command_line(__doc__, repeats=9).parse_args()
    sizes = QUICK if options.quick else FULL
    rules = rule_table(sizes)
    x, y = make_data(sizes["K"], sizes["D"], TEST, 0.0, seed=2)
    trained, model = training_table(sizes, x, y)
    predicted, rounding = inference_table(model, x, y, options.repeats)
    text = f"Error of log p with one draw of {DEFAULT} nodes:\n\n{table(rules)}\n\n"
    text += (
        f"Training with S nodes:\n\n{table(trained)}\n\nPredicting with S nodes, after training with {DEFAULT}:\n\n{table(predicted)}\n\n"
    )
    text += f"Rounding the {DEFAULT} nodes to bfloat16 moves log p by {rounding:.2g}.\n\n{harness.describe()}; {json.dumps(sizes)}\n"
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "accuracy.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
