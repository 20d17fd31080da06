"""The same heads in edward2 and here, on TensorFlow: seconds and memory of a training step, error of log p, time to an error.

python benchmarks/peers.py [--quick] [--output FOLDER]              (needs edward2, tf-keras and tensorflow-probability)

edward2 runs in each of its modes: compiled by XLA or not, samples shared by the batch or not. The error is the root mean square of the
error of log p, weighted by p, against 2^20 samples drawn by NumPy, over examples with mu ~ 2 N(0, 1), d = sd and rows of V of
length sd, at temperature 0.9.
"""

import functools
import itertools
import json
import sys

import harness
import numpy as np

CASES = {
    "softmax full": {"B": 128, "D": 2048, "K": 1000, "R": 15, "S": 1000},
    "softmax parameter-efficient": {"B": 128, "D": 2048, "K": 1000, "R": 15, "S": 1000},
    "sigmoid parameter-efficient": {"B": 16, "D": 2048, "K": 21_843, "R": 50, "S": 1000},
}
QUICK = {"B": 8, "D": 64, "K": 50, "R": 5, "S": 100}
MODES = [{"jit": jit, "shared": shared} for jit, shared in itertools.product([True, False], repeat=2)]
TEMPERATURE, EXAMPLES, REFERENCE, DRAWS = 0.9, 4, 1 << 20, 8
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
    """One training step by plain gradient descent, the same `tf.function` for both packages."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = tf.constant(rng.standard_normal((sizes["B"], sizes["D"]), dtype="float32"))
    head = edward2_head(case, sizes, samples, shared) if package == "edward2" else our_head(case, sizes, samples)
    if case.startswith("sigmoid"):
        y, loss = tf.constant(rng.integers(2, size=(sizes["B"], sizes["K"])).astype("float32")), tf.nn.sigmoid_cross_entropy_with_logits
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


def examples(sizes, sd):
    """mu, d and V of some examples, by NumPy."""
    rng = np.random.default_rng(1)
    mu = 2 * rng.standard_normal((EXAMPLES, sizes["K"]))
    factor = rng.standard_normal((EXAMPLES, sizes["K"], sizes["R"]))
    return mu, np.full_like(mu, sd), sd * factor / np.linalg.norm(factor, axis=-1, keepdims=True)


def reference(sizes, sd):
    """log p of the examples from 2^20 samples of NumPy, (EXAMPLES, K)."""
    rng, total = np.random.default_rng(2), 0.0
    mu, scale, factor = (x.astype("float32") for x in examples(sizes, sd))
    for _ in range(REFERENCE // 1024):
        eps_diag = rng.standard_normal((1024, 1, sizes["K"]), dtype="float32")
        eps_factor = rng.standard_normal((1024, sizes["R"]), dtype="float32")
        logits = mu + scale * eps_diag + np.tensordot(eps_factor, factor, (1, 2))
        weights = np.exp((logits - logits.max(-1, keepdims=True)) / TEMPERATURE)
        total += np.sum(weights / weights.sum(-1, keepdims=True), axis=0, dtype="float64")
    return np.log(total / REFERENCE)


def error(package, sizes, samples, sd, expected, shared=True):
    """Root mean square error of log p of the full softmax head, weighted by p, over several draws.

    The inputs are the rows of an identity matrix, so that the kernels of a head are mu, d and V of the examples.
    """
    import tensorflow as tf

    x, expected = np.eye(EXAMPLES, dtype="float32"), np.array(expected)
    mu, scale, factor = examples(sizes, sd)
    parts = {"loc": mu, "diag": np.log(np.expm1(scale - 1e-3)), "factor": factor.reshape(EXAMPLES, -1)}
    if package == "edward2":
        head = edward2_head("softmax full", sizes, samples, shared)
        layers = {"loc": head._loc_layer, "diag": head._diag_layer, "factor": head._scale_layer}
    else:
        head = our_head("softmax full", sizes, samples)
        head.build((None, EXAMPLES))
        layers = {"loc": head.loc, "diag": head.scale_diag, "factor": head.factor}
    draw = tf.function(lambda: head(x, training=True)) if package != "edward2" else lambda: head(x, training=True)
    draw()
    for name, layer in layers.items():
        layer.kernel.assign(parts[name].astype("float32"))
        layer.bias.assign(tf.zeros_like(layer.bias))
    return float(np.sqrt(np.mean([np.sum(np.exp(expected) * (draw().numpy() - expected) ** 2, axis=-1) for _ in range(DRAWS)])))


def fresh(row):
    environment = {"KERAS_BACKEND": "tensorflow"}
    if row["package"] == "edward2":
        environment["TF_USE_LEGACY_KERAS"] = "1"
    if row["what"] == "memory":
        environment |= harness.STEADY_MEMORY
    return harness.in_fresh_process(__file__, row, **environment)


def compare(cases, repeats):
    """A row for each package, head and mode: seconds, and memory over the same head with one sample."""
    for case, sizes in cases.items():
        ours = [{"jit": jit, "shared": True} for jit in (True, False)]
        for package, mode in [*(("edward2", mode) for mode in MODES), *(("keras_het", mode) for mode in ours)]:
            row = {"package": package, "case": case, "sizes": sizes, **mode}
            print("measuring", row, flush=True)
            peaks = [fresh({**row, "samples": samples, "what": "memory"})["peak_mib"] for samples in (sizes["S"], 1)]
            timed = fresh({**row, "samples": sizes["S"], "what": "seconds", "repeats": repeats})
            single = fresh({**row, "samples": 1, "what": "seconds", "repeats": repeats})
            memory = {"peak_mib": peaks[0], "over S=1 mib": peaks[0] - peaks[1]}
            yield {"package": package, "head": case, **mode, **sizes, **timed, "S=1 seconds": single["seconds"], **memory}


def time_to_error(sizes, seconds, repeats):
    """For each sd: the fewest nodes with which the error is at most edward2's at S, and the seconds of a step with them."""
    modes = [row for row in seconds if row["head"] == "softmax full"]
    best = min((row for row in modes if row["package"] == "edward2"), key=lambda row: row["seconds"])
    for sd in (0.5, 1.0, 2.0):
        common = {"what": "error", "sizes": sizes, "sd": sd, "expected": reference(sizes, sd).tolist()}
        theirs = fresh({**common, "package": "edward2", "samples": sizes["S"], "shared": best["shared"]})["error"]
        for samples in SAMPLES:
            ours = fresh({**common, "package": "keras_het", "samples": samples})["error"]
            if ours <= theirs:
                break
        row = {"package": "keras_het", "case": "softmax full", "sizes": sizes, "jit": True, "what": "seconds", "repeats": repeats}
        step, single = (fresh({**row, "samples": count})["seconds"] for count in (samples, 1))
        again = {**row, "package": "edward2", "jit": best["jit"], "shared": best["shared"]}
        peer, peer_single = (fresh({**again, "samples": count})["seconds"] for count in (sizes["S"], 1))
        yield [sd, theirs, ours, samples, peer, step, step / peer, (step - single) / (peer - peer_single)]


def main():
    options = harness.command_line(__doc__, repeats=7).parse_args()
    if options.row:
        print(json.dumps(measure_row(**options.row)))
        return
    cases = dict.fromkeys(CASES, QUICK) if options.quick else CASES
    rows = list(compare(cases, options.repeats))
    harness.write_csv(options.output / "peers.csv", rows)
    lines = [["head", "package", "XLA", "shared", "step ms (quartiles)", "step at S=1 ms", "peak MiB", "over S=1 MiB"]]
    for row in rows:
        flags = ["yes" if row[name] else "no" for name in ("jit", "shared")]
        memory = [f"{row['peak_mib']:.0f}", f"{row['over S=1 mib']:.0f}"]
        lines.append([row["head"], row["package"], *flags, harness.spread(row), harness.milliseconds(row["S=1 seconds"]), *memory])
    text = harness.markdown(lines) + "\n\n"
    head = ["sd", "edward2's error", "ours", "our S", "edward2's step s", "our step s", "ratio", "ratio of the sampling parts"]
    found = time_to_error(cases["softmax full"], rows, options.repeats)
    text += (
        harness.markdown([head, *([f"{value:.3g}" if isinstance(value, float) else str(value) for value in line] for line in found)]) + "\n"
    )
    (options.output / "peers.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
