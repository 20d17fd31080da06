"""Swapped classes that the covariance of a head finds: digits with 3-8, 4-9 and 1-7 swapped, 30% of each.

python -m benchmarks.labels.planted_pairs [--seeds 5] [--temperatures 1.5 5 15] [--quick]

The temperature is chosen by the likelihood of noisy labels that are held out. A seed is right if the three pairs are
the first three of `explain.confused_pairs`; beside it stands what else is beyond chance, and what four models have in
common, which start from other weights at that temperature and stop early.
"""

import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.results import publish
from keras_het.labels import corrupt

PAIRS = ((3, 8), (4, 9), (1, 7))
RATE, MEMBERS = 0.3, 4


def planted(seed):
    """Digits, and labels of which those of the pairs are swapped at the rate."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rows = np.eye(10)
    for i, j in PAIRS:
        rows[[i, j], [i, j]], rows[[i, j], [j, i]] = 1.0 - RATE, RATE
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    return (x[order] / 16.0).astype("float32"), corrupt(y[order], rows, [seed, 2])


def make_model(temperature, seed):
    """Two hidden layers of 128 and a full head."""
    import keras

    from keras_het.layers import HeteroscedasticDense

    keras.utils.set_random_seed(seed)
    head = HeteroscedasticDense(10, temperature=temperature, seed=seed)
    hidden = [keras.layers.Dense(128, "relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((64,)), *hidden, head])
    model.compile(keras.optimizers.Adam(2e-3), head.link.loss())
    return model


def found_pairs(seed, temperatures, epochs):
    """The chosen temperature, what `confused_pairs` returns for that model, and what it returns for four others."""
    import keras

    from keras_het import tune
    from keras_het.explain import confused_pairs

    x, y = planted(seed)
    train, held_out = (x[:1400], y[:1400]), (x[1400:], y[1400:])
    arguments = {"epochs": epochs, "validation_data": held_out, "extend": False, "verbose": 0}
    chosen = tune(lambda t: make_model(t, seed), temperatures, *train, **arguments)
    members = [make_model(chosen.value, 100 * seed + member) for member in range(MEMBERS)]
    for member in members:
        stop = keras.callbacks.EarlyStopping(patience=10, restore_best_weights=True)
        member.fit(*train, batch_size=64, epochs=epochs, validation_data=held_out, callbacks=[stop], verbose=0)
    return chosen.value, confused_pairs(chosen.model, x), confused_pairs(members, x)


def named(pairs):
    """Pairs with their covariances."""
    return ", ".join(f"{pair.first}-{pair.second} ({pair.covariance:.2g})" for pair in pairs) or "none"


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.5, 5.0, 15.0])
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs")
    options = parser.parse_args()
    epochs, seeds = (2, 1) if options.quick else (60, options.seeds)
    lines = [["seed", "temperature", "first three", "planted", "beyond chance besides", "of four models"]]
    for seed in range(seeds):
        temperature, pairs, common = found_pairs(seed, options.temperatures, epochs)
        right = {(pair.first, pair.second) for pair in pairs[:3]} == {tuple(sorted(pair)) for pair in PAIRS}
        cells = [f"{temperature:g}", named(pairs[:3]), "yes" if right else "no", named(pairs[3:]), named(common)]
        lines.append([str(seed), *cells])
        print(" | ".join(lines[-1]), flush=True)
    publish(options.output, "planted_pairs", {"pairs that are found": lines}, range(seeds))


if __name__ == "__main__":
    main()
