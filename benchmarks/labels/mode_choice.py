"""Travel modes that 210 people chose: the conditional logit of econometrics, and errors with a covariance beside it.

python -m benchmarks.labels.mode_choice [--seeds 3] [--steps 1000] [--output FOLDER] [--quick]      (on KERAS_BACKEND)

The data are statsmodels' `modechoice`: air, train, bus and car, their generalised cost (gc) and waiting time (ttme) and
the income of the household (hinc), which Greene (Econometric Analysis) fits by a conditional logit: one coefficient of
a feature for all modes, a constant for each mode but the car, and income for air alone.

Such utilities are a Dense(1) over the modes. The head of this package cannot make them by itself: its mean has a kernel
of its own for every class. So its mean is the identity of these utilities, and is not trained; and its covariance is
the same for all people, for the kernels of d and V stay 0. With a temperature of 1 that is a mixed logit: Gumbel's
errors and, beside them, normal ones with the covariance diag(d^2) + V V'. A softmax sees only the six numbers of its
centred part, so V has at most two factors beside d.

All are fitted by Adam on all examples at once, mixed logits from the conditional logit, by 512 new nodes at each step,
with the seeds as starts; the best is shown. Log-likelihoods are by 16,384 nodes. The published estimates are those of
R's mlogit for Greene's model, which statsmodels has in its tests, and, for normal errors, those of pylogit by 500 draws
(its notebook "More Mixed Logit", 2016): of all modes, and of air alone. Of air alone the likelihood is also computed by
quadrature, in float64 and without this package: of pylogit's estimates, and its maximum.
"""

import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.results import publish

FEATURES = ("gc", "ttme", "air", "hinc, air", "train", "bus")
PUBLISHED = {
    "conditional logit, published": (-199.1284, -0.01550, -0.09612, 5.20743, 0.01329, 3.86904, 3.16319),
    "normal errors, independent, published": (-195.7015, -0.0333, -0.1156, 4.6890, 0.0381, 5.2413, 4.2436),
    "normal error of air, published": (-195.6975, -0.0326, -0.1142, 4.6406, 0.0372, 5.1455, 4.1621),
}
OF_AIR = 3.3096  # its standard deviation
ERRORS = {"normal errors, independent": 0, "normal errors, one factor": 1, "normal errors, two factors": 2}
STEP, NODES, NODES_AT_LAST = 0.05, 512, 1 << 14


def people():
    """Features, `(210, 4, 6)`, the modes that were chosen, `(210,)`, and a matrix `(6, 6)`.

    The features are turned and scaled so that they are uncorrelated between the modes of a person, for one step of Adam
    fits all; the matrix makes coefficients of the data of coefficients of these features.
    """
    from statsmodels.datasets import modechoice

    table = modechoice.load_pandas().data.sort_values(["individual", "mode"])
    gc, ttme, hinc, chosen = (table[name].to_numpy().reshape(-1, 4) for name in ("gc", "ttme", "hinc", "choice"))
    air, train, bus = (np.broadcast_to(np.eye(4)[mode], gc.shape) for mode in range(3))
    x = np.stack([gc, ttme, air, hinc * air, train, bus], axis=-1)
    centred = (x - x.mean(1, keepdims=True)).reshape(-1, len(FEATURES))
    back = np.linalg.inv(np.linalg.cholesky(centred.T @ centred / len(x))).T
    return (x @ back).astype("float32"), chosen.argmax(1), back


def conditional_logit():
    """A model that returns the utilities of the modes."""
    import keras

    inputs = keras.Input((4, len(FEATURES)))
    return keras.Model(inputs, keras.layers.Flatten()(keras.layers.Dense(1, use_bias=False)(inputs)))


def mixed_logit(utilities, factors, seed):
    """The same with a head, whose mean is the utilities."""
    import keras

    from keras_het.integrators import QuasiMonteCarlo
    from keras_het.layers import HeteroscedasticDense

    head = HeteroscedasticDense(
        4,
        factors,
        temperature=1.0,
        use_bias=False,
        kernel_initializer="identity",
        integrator=QuasiMonteCarlo(NODES, inference_samples=NODES_AT_LAST),
        seed=seed,
    )
    model = keras.Model(utilities.input, head(utilities.outputs[0]))
    head.loc_layer.trainable = False
    head.covariance.scale_diag_layer.kernel.trainable = False
    if factors:
        head.covariance.factor_layer.kernel.trainable = False
        head.covariance.factor_layer.bias.assign(np.random.default_rng(seed).normal(size=4 * factors))
    return model


def fitted(model, x, y, steps):
    """The log-likelihood after so many steps, which become smaller."""
    import keras

    rate = keras.optimizers.schedules.CosineDecay(STEP, steps)
    model.compile(
        keras.optimizers.Adam(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    )
    for _ in range(steps):
        model.train_on_batch(x, y)
    return -float(model.test_on_batch(x, y))


def by_quadrature(x, y, values):
    """The log-likelihood of a normal error of air alone; the last of the values is its standard deviation."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    utilities = (x.astype("float64") @ values[:-1])[:, None] + values[-1] * nodes[:, None] * np.eye(4)[0]
    logs = utilities - np.log(np.exp(utilities).sum(-1, keepdims=True))
    return np.log(np.exp(logs[np.arange(len(y)), :, y]) @ weights / weights.sum()).sum()


def oracles(x, y, back):
    """Rows of the likelihood by quadrature: of the published estimates, and its maximum."""
    from scipy.optimize import minimize

    published = PUBLISHED["normal error of air, published"][1:]
    start = np.append(np.linalg.solve(back, published), OF_AIR)
    best = minimize(lambda values: -by_quadrature(x, y, values), start, method="BFGS", tol=1e-6)
    return [
        ("the same, by quadrature", by_quadrature(x, y, start), published),
        ("maximum by quadrature", -best.fun, back @ best.x[:-1]),
    ]


def coefficients(model, back):
    """In the units of the data."""
    import keras

    dense = next(layer for layer in model.layers if type(layer) is keras.layers.Dense)
    return back @ keras.ops.convert_to_numpy(dense.kernel)[:, 0]


def correlations(model):
    """Of the noise of air and of the ground modes beside the car: (train, bus), (air, train), (air, bus)."""
    import keras

    covariance = keras.ops.convert_to_numpy(model.layers[-1].logit_covariance(np.zeros((1, 4), "float32")))[0]
    differences = np.concatenate([np.eye(3), -np.ones((3, 1))], axis=1)
    matrix = differences @ covariance @ differences.T
    scale = np.sqrt(np.diag(matrix))
    return scale, (matrix / np.outer(scale, scale))[[1, 0, 0], [2, 1, 2]]


def main():
    import keras

    parser = harness.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="one seed, ten steps")
    options = parser.parse_args()
    seeds, steps = (range(1), 10) if options.quick else (range(options.seeds), options.steps)
    x, y, back = people()
    keras.utils.set_random_seed(0)
    plain = conditional_logit()
    likelihood = fitted(plain, x, y, steps)
    start = plain.get_weights()
    rows = [["model", "log-likelihood", *FEATURES]]
    for name, (likelihood_then, *values) in PUBLISHED.items():
        rows.append([name, f"{likelihood_then:.3f}", *(f"{value:.4g}" for value in values)])
    for name, likelihood_now, values in oracles(x, y, back):
        rows.append([name, f"{likelihood_now:.3f}", *(f"{value:.4g}" for value in values)])
    rows.append(["conditional logit", f"{likelihood:.3f}", *(f"{value:.4g}" for value in coefficients(plain, back))])
    noise = [
        ["errors beside the car's", "sd of air", "train", "bus", "correlation train, bus", "air, train", "air, bus"]
    ]
    for name, factors in ERRORS.items():
        found = []
        for seed in seeds:
            plain.set_weights(start)
            model = mixed_logit(plain, factors, seed)
            found.append((fitted(model, x, y, steps), coefficients(model, back), *correlations(model)))
            print(name, seed, f"{found[-1][0]:.3f}", *(part.round(3) for part in found[-1][1:]), flush=True)
        likelihood, values, scales, related = max(found, key=lambda one: one[0])
        rows.append([name, f"{likelihood:.3f}", *(f"{value:.4g}" for value in values)])
        noise.append([name, *(f"{value:.2f}" for value in (*scales, *related))])
    packages = ["statsmodels", keras.config.backend()]
    publish(options.output, "mode_choice", {"estimates": rows, "noise": noise}, seeds, packages)


if __name__ == "__main__":
    main()
