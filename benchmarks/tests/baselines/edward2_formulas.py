"""edward2's heteroscedastic layers by formula, in NumPy float64: weights under their names, and what they compute."""

import numpy as np

FEATURES, UNITS, FACTORS = 6, 4, 2
LAYERS = {
    "MCSoftmaxDense": ({"loc_layer": UNITS, "scale_layer": UNITS}, "softmax"),
    "MCSoftmaxDenseFA full": ({"scale_layer": UNITS * FACTORS, "loc_layer": UNITS, "diag_layer": UNITS}, "softmax"),
    "MCSoftmaxDenseFA parameter-efficient": (
        {
            "scale_layer_homoscedastic": UNITS,
            "scale_layer_heteroscedastic": UNITS,
            "loc_layer": UNITS,
            "diag_layer": UNITS,
        },
        "softmax",
    ),
    "MCSigmoidDenseFA diagonal": ({"loc_layer": UNITS, "diag_layer": UNITS}, "sigmoid"),
    "MCSigmoidDenseFA full": ({"loc_layer": UNITS, "scale_layer": UNITS * FACTORS, "diag_layer": UNITS}, "sigmoid"),
    "MCSigmoidDenseFA parameter-efficient": (
        {
            "loc_layer": UNITS,
            "scale_layer_homoscedastic": UNITS,
            "scale_layer_heteroscedastic": UNITS,
            "diag_layer": UNITS,
        },
        "sigmoid",
    ),
}


def make_weights(layer, seed=0):
    """Normal arrays, biases too, under names such as "MCSoftmaxDenseFA_loc_layer/kernel:0"."""
    rng, weights = np.random.default_rng(seed), {}
    for name, width in LAYERS[layer][0].items():
        inputs = FACTORS if name.endswith("homoscedastic") else FEATURES
        weights[f"{layer.split()[0]}_{name}/kernel:0"] = rng.normal(size=(inputs, width)).astype("float32")
        weights[f"{layer.split()[0]}_{name}/bias:0"] = rng.normal(size=width).astype("float32")
    return weights


def moments(weights, x):
    """Mean `(B, K)` and covariance `(B, K, K)` of their logits u."""
    maps = {name.split("/")[0].split("_", 1)[1]: 0 for name in weights}
    kernel, bias = (
        {k: weights[n] for n in weights for k in maps if n.endswith(f"_{k}/{w}:0")} for w in ("kernel", "bias")
    )
    apply = {name: (x @ kernel[name] + bias[name]) for name in maps if not name.endswith("homoscedastic")}
    mean, d = apply["loc_layer"], np.log1p(np.exp(apply.get("diag_layer", apply.get("scale_layer")))) + 1e-3
    covariance = d[:, :, None] ** 2 * np.eye(mean.shape[1])
    if "scale_layer_homoscedastic" in maps:
        v = apply["scale_layer_heteroscedastic"]
        mean = mean + v * bias["scale_layer_homoscedastic"]
        factor = v[:, :, None] * kernel["scale_layer_homoscedastic"].T
        covariance = covariance + factor @ factor.transpose(0, 2, 1)
    elif {"diag_layer", "scale_layer"} <= set(maps):
        factor = apply["scale_layer"].reshape(len(x), mean.shape[1], -1)
        covariance = covariance + factor @ factor.transpose(0, 2, 1)
    return mean, covariance


def probabilities(weights, link, x, temperature, samples=1 << 17):
    """Their predictive probabilities `(B, K)` by samples of the whole Gaussian, and the standard error of each."""
    mean, covariance = moments(weights, x)
    rng = np.random.default_rng(1)
    draws = []
    for m, c in zip(mean, covariance, strict=True):
        u = rng.multivariate_normal(m, c, size=samples, method="cholesky") / temperature
        e = np.exp(u - u.max(axis=1, keepdims=True))
        draws.append(e / e.sum(axis=1, keepdims=True) if link == "softmax" else 1 / (1 + np.exp(-u)))
    draws = np.stack(draws)
    return draws.mean(axis=1), draws.std(axis=1) / np.sqrt(samples)
