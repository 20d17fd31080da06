"""Seconds, memory and errors of the same heads in edward2, on TensorFlow.

python -m benchmarks.cost.peers [--quick] [--output FOLDER]  (nox: bench -- cost.peers --backend tensorflow)

edward2 runs in each of its modes: compiled by XLA or not, with samples shared by the batch or not. For softmax, the
error is the root mean square of the error of log p, weighted by p, against 2^20 samples of NumPy. For the sigmoid, it
is the error of the logit, against a sum in float64. The examples have mu ~ 2 N(0, 1), d = sd and rows of V, or of
diag(v) V, of length sd, at temperature 0.9. In the first table sd is 1.
"""

import functools
import itertools
import pathlib
import sys
import tempfile

import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.results import publish

CASES = {
    "softmax full": {"B": 128, "D": 2048, "K": 1000, "R": 15, "S": 1000},
    "softmax parameter-efficient": {"B": 128, "D": 2048, "K": 1000, "R": 15, "S": 1000},
    "sigmoid parameter-efficient": {"B": 16, "D": 2048, "K": 21_843, "R": 50, "S": 1000},
}
QUICK = {"B": 8, "D": 64, "K": 50, "R": 5, "S": 100}
MODES = [{"jit": jit, "shared": shared} for jit, shared in itertools.product([True, False], repeat=2)]
TEMPERATURE, EXAMPLES, REFERENCE, DRAWS = 0.9, 4, 1 << 20, 8
MEASURED = ("step ms (quartiles)", "step at S=1 ms", "peak MiB", "over S=1 MiB", "error")
TO_ERROR = (
    *("edward2's error", "ours", "our S", "edward2's step s", "our step s"),
    *("ratio", "ratio of the sampling parts"),
)
SAMPLES = [64, 128, 256, 512, 1024, 2048, 4096]


def edward2_head(case, sizes, samples, shared):
    sys.modules["scipy"] = None  # without SciPy edward2 leaves out its NumPy backend, which breaks on today's SciPy
    import edward2

    layer = edward2.layers.MCSigmoidDenseFA if case.startswith("sigmoid") else edward2.layers.MCSoftmaxDenseFA
    return layer(
        sizes["K"],
        sizes["R"],
        temperature=TEMPERATURE,
        parameter_efficient=case.endswith("efficient"),
        train_mc_samples=samples,
        share_samples_across_batch=shared,
        logits_only=True,
    )


def our_head(case, sizes, samples):
    import keras_het

    integrator = None if case.startswith("sigmoid") else keras_het.integrators.QuasiMonteCarlo(samples)
    return keras_het.layers.HeteroscedasticDense(
        sizes["K"],
        sizes["R"],
        temperature=TEMPERATURE,
        parameter_efficient=case.endswith("efficient"),
        link=case.split()[0],
        integrator=integrator,
        seed=0,
    )


def make_step(package, case, sizes, samples, jit, shared=True):
    """Returns a function that takes one step of plain gradient descent, the same `tf.function` for both packages."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = tf.constant(rng.standard_normal((sizes["B"], sizes["D"]), dtype="float32"))
    head = edward2_head(case, sizes, samples, shared) if package == "edward2" else our_head(case, sizes, samples)
    if case.startswith("sigmoid"):
        y, loss = (
            tf.constant(rng.integers(2, size=(sizes["B"], sizes["K"])).astype("float32")),
            tf.nn.sigmoid_cross_entropy_with_logits,
        )
    else:
        y, loss = tf.constant(rng.integers(sizes["K"], size=sizes["B"])), tf.nn.sparse_softmax_cross_entropy_with_logits
    head(x, training=True)  # builds it
    weights = head.trainable_weights if package == "edward2" else [weight.value for weight in head.trainable_weights]

    @functools.partial(tf.function, jit_compile=jit)
    def step():
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(labels=y, logits=head(x, training=True)))
        for weight, gradient in zip(weights, tape.gradient(value, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return value

    return lambda: step().numpy()


def measure_row(what, **row):
    if what == "memory":
        step = make_step(**row)
        step(), step()
        return {"peak_mib": harness.peak_memory()}
    if what == "error":
        return {"error": error(**row)}
    repeats = row.pop("repeats")
    timing = harness.measure({"step": make_step(**row)}, repeats)["step"]
    return {"seconds": timing.median, "low": timing.low, "high": timing.high}


def examples(case, sizes, sd):
    """Returns mu, d and W = V or diag(v) V of examples, as NumPy arrays; d is sd and rows of W have length sd."""
    rng = np.random.default_rng(1)
    mu = 2 * rng.standard_normal((EXAMPLES, sizes["K"]))
    shared = () if case.endswith("efficient") else (EXAMPLES,)
    factor = rng.standard_normal((*shared, sizes["K"], sizes["R"]))
    return mu, np.full_like(mu, sd), sd * factor / np.linalg.norm(factor, axis=-1, keepdims=True)


def reference(case, sizes, sd):
    """Returns log p of the examples from 2^20 samples of NumPy, `(EXAMPLES, K)`.

    For the sigmoid it is the logit of p, by a sum over one axis.
    """
    mu, scale, factor = (x.astype("float32") for x in examples(case, sizes, sd))
    if case.startswith("sigmoid"):
        return sigmoid_reference(mu.astype("float64"), sd * np.sqrt(2))
    rng, total = np.random.default_rng(2), 0.0
    for _ in range(REFERENCE // 1024):
        eps_diag = rng.standard_normal((1024, 1, sizes["K"]), dtype="float32")
        eps_factor = rng.standard_normal((1024, sizes["R"]), dtype="float32")
        correlated = np.tensordot(eps_factor, factor, (1, factor.ndim - 1))
        logits = mu + scale * eps_diag + (correlated if factor.ndim == 3 else correlated[:, None])
        weights = np.exp((logits - logits.max(-1, keepdims=True)) / TEMPERATURE)
        total += np.sum(weights / weights.sum(-1, keepdims=True), axis=0, dtype="float64")
    return np.log(total / REFERENCE)


def sigmoid_reference(mu, deviation):
    """Returns the logit of E[sigmoid(u / tau)] in float64, by the trapezoidal rule.

    The error of the rule falls exponentially with the number of points.
    """
    points = np.linspace(-9, 9, 401)
    weights = np.exp(-(points**2) / 2) / np.sum(np.exp(-(points**2) / 2))
    p = sum(w / (1 + np.exp(-(mu + deviation * z) / TEMPERATURE)) for w, z in zip(weights, points, strict=True))
    return np.log(p) - np.log1p(-p)


def maps(package, head):
    """Returns the affine maps of a head of either package, under our names."""
    if package == "keras_het":
        owned = {
            name: getattr(head.covariance, f"{name}_layer", None) for name in ("scale_diag", "factor", "row_scale")
        }
        return {"loc": head.loc_layer, **{name: layer for name, layer in owned.items() if layer is not None}}
    names = {"loc": "_loc_layer", "scale_diag": "_diag_layer", "factor": "_scale_layer"}
    if head._parameter_efficient:
        names |= {"factor": "_scale_layer_homoscedastic", "row_scale": "_scale_layer_heteroscedastic"}
    return {name: getattr(head, attribute) for name, attribute in names.items()}


def give_weights(package, head, case, sizes, sd):
    """Sets the weights of a head so that rows of an identity matrix give the examples' mu, d and W."""
    mu, scale, factor = examples(case, sizes, sd)
    unit = head.covariance.scale_unit if package == "keras_het" else 1.0
    scale_kernel = np.log(np.expm1((scale - 1e-3) / unit))
    kernels = {"loc": mu, "scale_diag": scale_kernel, "row_scale": np.ones_like(mu)}
    kernels["factor"] = (
        factor.reshape(EXAMPLES, -1) if factor.ndim == 3 else factor if package == "keras_het" else factor.T
    )
    for name, layer in maps(package, head).items():
        weight = getattr(layer, "kernel", layer)  # our shared V is a weight of the head itself
        weight.assign((kernels[name] / getattr(layer, "multiplier", 1.0)).astype("float32"))  # of our maps of the noise
        if hasattr(layer, "bias"):
            layer.bias.assign(np.zeros(layer.bias.shape, "float32"))


def error(package, case, sizes, samples, sd, expected, shared=True):
    """Returns the root mean square error over several draws: of log p, weighted by p, or of the sigmoid's logit."""
    import tensorflow as tf

    x, expected = np.eye(EXAMPLES, dtype="float32"), np.load(expected)
    head = edward2_head(case, sizes, samples, shared) if package == "edward2" else our_head(case, sizes, samples)
    draw = tf.function(lambda: head(x, training=True)) if package != "edward2" else lambda: head(x, training=True)
    draw()
    give_weights(package, head, case, sizes, sd)
    squares = [(draw().numpy() - expected) ** 2 for _ in range(DRAWS)]
    weights = np.full_like(expected, 1 / sizes["K"]) if case.startswith("sigmoid") else np.exp(expected)
    return float(np.sqrt(np.mean([np.sum(weights * square, axis=-1) for square in squares])))


def fresh(row):
    environment = {"KERAS_BACKEND": "tensorflow"}
    if row["package"] == "edward2":
        environment["TF_USE_LEGACY_KERAS"] = "1"
    if row["what"] == "memory":
        environment |= harness.STEADY_MEMORY
    return harness.in_fresh_process(__spec__.name, row, **environment)


def error_in_folder(folder, package, case, sizes, samples, sd, shared=True):
    """Returns `error` from a new process, with a reference that is computed once and stored in a folder."""
    path = folder / f"{case.replace(' ', '-')}-{sd:g}.npy"
    if not path.exists():
        np.save(path, reference(case, sizes, sd))
    row = {"package": package, "case": case, "sizes": sizes, "samples": samples, "sd": sd, "shared": shared}
    return fresh({"what": "error", **row, "expected": str(path)})["error"]


def compare(cases, repeats, errors):
    """Returns for each package, head and mode seconds, memory beyond one sample, and the error at sd 1."""
    for case, sizes in cases.items():
        ours = [{"jit": jit, "shared": True} for jit in (True, False)]
        for package, mode in [*(("edward2", mode) for mode in MODES), *(("keras_het", mode) for mode in ours)]:
            row = {"package": package, "case": case, "sizes": sizes, **mode}
            print("measuring", row, flush=True)
            peaks = [fresh({**row, "samples": samples, "what": "memory"})["peak_mib"] for samples in (sizes["S"], 1)]
            timed = fresh({**row, "samples": sizes["S"], "what": "seconds", "repeats": repeats})
            single = fresh({**row, "samples": 1, "what": "seconds", "repeats": repeats})
            memory = {"peak_mib": peaks[0], "over S=1 mib": peaks[0] - peaks[1]}
            result = {"error": errors(package, case, sizes, sizes["S"], 1.0, mode["shared"])} | memory
            yield {"package": package, "head": case, **mode, **timed, "S=1 seconds": single["seconds"], **result}


def time_to_error(sizes, seconds, repeats, errors):
    """Returns for each sd the fewest nodes that reach edward2's error at S, and the seconds of a step."""
    modes = [row for row in seconds if row["head"] == "softmax full"]
    best = min((row for row in modes if row["package"] == "edward2"), key=lambda row: row["seconds"])
    for sd in (0.5, 1.0, 2.0):
        theirs = errors("edward2", "softmax full", sizes, sizes["S"], sd, best["shared"])
        for samples in SAMPLES:
            ours = errors("keras_het", "softmax full", sizes, samples, sd)
            if ours <= theirs:
                break
        timed = {"case": "softmax full", "sizes": sizes, "what": "seconds", "repeats": repeats}
        row = {**timed, "package": "keras_het", "jit": True}
        step, single = (fresh({**row, "samples": count})["seconds"] for count in (samples, 1))
        again = {**timed, "package": "edward2", "jit": best["jit"], "shared": best["shared"]}
        peer, peer_single = (fresh({**again, "samples": count})["seconds"] for count in (sizes["S"], 1))
        yield [sd, theirs, ours, samples, peer, step, step / peer, (step - single) / (peer - peer_single)]


def main():
    options = harness.command_line(__doc__, measure_row, repeats=7).parse_args()
    cases = dict.fromkeys(CASES, QUICK) if options.quick else CASES
    with tempfile.TemporaryDirectory() as folder:
        errors = functools.partial(error_in_folder, pathlib.Path(folder))
        rows = list(compare(cases, options.repeats, errors))
        time_rows = list(time_to_error(cases["softmax full"], rows, options.repeats, errors))
    lines = [["head", "package", "XLA", "shared", *MEASURED]]
    for row in rows:
        flags = ["yes" if row[name] else "no" for name in ("jit", "shared")]
        times = [harness.spread(row), harness.milliseconds(row["S=1 seconds"])]
        memory = [f"{row['peak_mib']:.0f}", f"{row['over S=1 mib']:.0f}", f"{row['error']:.2g}"]
        lines.append([row["head"], row["package"], *flags, *times, *memory])
    cells = ([f"{value:.3g}" if isinstance(value, float) else str(value) for value in line] for line in time_rows)
    times = [["sd", *TO_ERROR], *cells]
    tables = {"seconds and memory of a step": lines, "time to the error of edward2": times}
    publish(options.output, "peers", tables, [0], ["tensorflow", "edward2", "tf-keras"], harness.processor())


if __name__ == "__main__":
    main()
