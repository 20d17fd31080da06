"""Seconds and peak memory of each head on a CPU, beside `Dense` and the machine's floor.

python -m benchmarks.cost.speed [--backends jax tensorflow torch] [--heads NAME ...] [--sweeps S K B R] [--quick]
    [--base] [--nodes 256] [--compilers jit_compile] [--output FOLDER]
(--sweeps: sizes to vary, one at a time; --base: only the sizes from which the others vary; --nodes: their S)

Everything runs on the processor; `gpu.py` measures an accelerator. Every measurement has a new process, which measures
Dense and the machine's rates in turn with the head. `--quick` measures the full head at the base sizes three times. The
floor is

    max(exp / exp rate + flops / matmul rate, bytes / read rate)
    m:           1 (Dense), 2 (diagonal), 3 (parameter-efficient), 2 + R (full), 2 + r / K + r R / D (narrow, r = 16)
    training:    exp = 2 S B K,  flops = 4 m B D K + 6 S B K R (full) or 6 S K R (parameter-efficient), bytes = 20 m D K
    prediction:  exp =   S B K,  flops = 2 m B D K + 2 S B K R (full) or 2 S K R (parameter-efficient), bytes =  4 m D K

The narrow head has the products of the full one at the nodes. For the closed form of the sigmoid, S = 0 and there are
16 B K exponentials (32 B K in training). The features need no gradient here, hence 4 and not 6. Element-wise work does
not count. 20 bytes are a kernel read, its gradient written, and the update. "times maps + exp" divides the time by m
times the time of Dense, plus the exponentials, as if only the affine maps were necessary.
"""

import itertools

from benchmarks.lib import harness
from benchmarks.lib.results import publish

BACKENDS = ["jax", "tensorflow", "torch"]
BASE = {"B": 128, "D": 2048, "K": 1000, "R": 15, "S": 256}
SWEEPS = {"S": [16, 64, 256, 1024], "K": [10, 100, 1000, 21_843], "B": [16, 128, 512], "R": [5, 15, 50]}
QUICK_HEADS, QUICK_REPEATS = ["full"], 3
HEADS = {
    "diagonal": lambda r: {"num_factors": 0},
    "full": lambda r: {"num_factors": r},
    "narrow": lambda r: {"covariance": _narrow(r)},
    "parameter-efficient": lambda r: {"num_factors": r, "parameter_efficient": True},
    "sigmoid parameter-efficient": lambda r: {"num_factors": r, "parameter_efficient": True, "link": "sigmoid"},
}
MODES = ["train", "predict"]
MEASURED = ("ms (quartiles)", "times Dense", "times floor", "times maps + exp", "peak MiB", "million weights")
COMPILERS = ["jit_compile"]  # PyTorch only
WIDTH = 16  # narrow head
ON_PROCESSOR = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
LARGEST_KERNEL = 1 << 28  # numbers: the full head at K = 21,843 would need gigabytes for its kernel alone


def _narrow(num_factors):
    from keras_het.covariances import Narrow

    return Narrow(num_factors, WIDTH)


def grid(base, sweeps, heads=tuple(HEADS)):
    """Returns (head, sizes) of every row. One size varies at a time, if the head has it."""
    for head, (name, values) in itertools.product(heads, sweeps.items()):
        for value in values:
            sizes = {**base, name: value}
            sizes["R"] = min(sizes["R"], sizes["K"])
            unused = {"diagonal": "R", "sigmoid parameter-efficient": "S"}.get(head)
            if name != unused and not (head == "full" and sizes["D"] * sizes["K"] * sizes["R"] > LARGEST_KERNEL):
                yield head, {**sizes, **({unused: 0} if unused else {})}


def num_maps(head, D, K, R):
    """Returns m of the floor: affine maps from the features, in units of one Dense layer."""
    return {"Dense": 1, "diagonal": 2, "full": 2 + R, "narrow": 2 + WIDTH / K + WIDTH * R / D}.get(head, 3)


def work(head, mode, B, D, K, R, S):
    """Returns (exp, flops, bytes) of the floor, as described at the top of the module."""
    maps = num_maps(head, D, K, R)
    passes, exps = (3, 2) if mode == "train" else (1, 1)
    samples = {"full": B, "narrow": B, "parameter-efficient": 1}.get(head, 0) * S * K * R
    elements = 0 if head == "Dense" else (16 if head.startswith("sigmoid") else S) * B * K
    dense = (4 if mode == "train" else 2) * maps * B * D * K
    return exps * elements, dense + 2 * passes * samples, (20 if mode == "train" else 4) * maps * D * K


def floor(head, mode, sizes, rates):
    exps, flops, moved = work(head, mode, **sizes)
    flop_rate, exp_rate, read_rate = rates
    return max(exps / exp_rate + flops / flop_rate, moved / read_rate)


def make_model(head, B, D, K, R, S, learning_rate=0.01, compiler=None):
    """Returns a compiled model of the head alone, a batch, and its labels."""
    import keras
    import numpy as np

    import keras_het

    layer = keras.layers.Dense(K)
    if head in HEADS:
        integrator = keras_het.integrators.QuasiMonteCarlo(S) if S else None
        layer = keras_het.layers.HeteroscedasticDense(K, **HEADS[head](R), integrator=integrator, seed=0)
    model = keras.Sequential([keras.Input((D,)), layer])
    sigmoid = head.startswith("sigmoid")
    loss = keras.losses.BinaryCrossentropy if sigmoid else keras.losses.SparseCategoricalCrossentropy
    whole_step = keras.config.backend() != "torch" or compiler == "jit_compile"
    model.compile(keras.optimizers.SGD(learning_rate), loss(from_logits=True), jit_compile=whole_step)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((B, D), dtype="float32")
    y = rng.integers(2, size=(B, K)).astype("float32") if sigmoid else rng.integers(K, size=B)
    return model, x, y


def make_calls(head, compiler=None, **sizes):
    """Returns by mode functions that take one step, or predict, with the public API, and wait for the result."""
    model, x, y = make_model(head, compiler=compiler, **sizes)

    def train():
        model.train_on_batch(x, y)
        return harness.wait(model.optimizer.iterations)  # written last

    return {"train": train, "predict": lambda: model.predict_on_batch(x)}


def measure_row(head, what, sizes, repeats, compiler=None):
    """Returns the measurements of one process by mode: seconds, or peak memory."""
    if what == "memory":
        return measure_memory(make_calls(head, compiler, **sizes))
    return measure_seconds(head, sizes, repeats, compiler)


def measure_memory(calls):
    """Returns the peak of each mode. The prediction comes first, because a peak only rises."""
    peaks = {}
    for mode in ("predict", "train"):
        calls[mode](), calls[mode]()
        peaks[mode] = {"peak_mib": harness.peak_device_memory()}
    return peaks


def measure_seconds(head, sizes, repeats, compiler=None):
    """Returns for each mode the seconds of the head and of Dense, and their ratios to the floor."""
    probe_sizes = harness.ACCELERATOR if harness.accelerator() else harness.PROCESSOR
    functions = harness.probes(probe_sizes)
    for name, mode in itertools.product((head, "Dense"), MODES):
        functions[name, mode] = make_calls(name, compiler, **sizes)[mode]
    timings = harness.measure(functions, repeats)
    rates = harness.rates(timings, probe_sizes)
    result = {}
    for mode in MODES:
        own, dense = timings[head, mode], timings["Dense", mode]
        least, dense_least = floor(head, mode, sizes, rates), floor("Dense", mode, sizes, rates)
        maps_and_exps = (
            num_maps(head, *(sizes[name] for name in "DKR")) * dense.median + work(head, mode, **sizes)[0] / rates[1]
        )
        result[mode] = {
            "seconds": own.median,
            "low": own.low,
            "high": own.high,
            "dense": dense.median,
            "times dense": own.median / dense.median,
            "floor": least,
            "times floor": own.median / least,
            "times maps + exp": own.median / maps_and_exps,
            "dense times floor": dense.median / dense_least,
        }
    return result


def measure(backend, grid, repeats, compiler=None, **environment):
    """Returns the measurements of a backend, a dict for each head, sizes and mode, from new processes."""
    rows = list(dict.fromkeys((head, tuple(sizes.items())) for head, sizes in grid))
    return [
        row for head, sizes in rows for row in measure_head(backend, head, dict(sizes), repeats, compiler, environment)
    ]


def measure_head(backend, head, sizes, repeats, compiler, environment):
    """Returns the measurements of a head, a dict for each mode."""
    job = {"head": head, "sizes": sizes, "repeats": repeats, "compiler": compiler}
    timed, peaks = {}, {}
    for what, result, steady in (("seconds", timed, {}), ("memory", peaks, harness.STEADY_MEMORY)):
        print(f"{backend}: {head}, {sizes}, {what}", flush=True)
        settings = {"KERAS_BACKEND": backend, **environment, **steady}
        result |= harness.in_fresh_process(__spec__.name, {"what": what, **job}, **settings)
    name = f"{backend}, {compiler}" if compiler else backend
    return [{"backend": name, "head": head, "mode": mode, **sizes, **timed[mode], **peaks[mode]} for mode in MODES]


def report(rows, sweeps, base):
    """Returns by title a table for each mode, then the growth of the cost."""
    tables = {}
    for mode in MODES:
        lines = [["backend", "head", *"BKRS", *MEASURED]]
        for row in (row for row in rows if row["mode"] == mode):
            sizes = [str(row[name] or "") for name in "BKRS"]
            ratios = [
                *(f"{row[name]:.1f}" for name in ("times dense", "times floor", "times maps + exp")),
                f"{row['peak_mib']:.0f}",
                f"{num_maps(row['head'], *(row[name] for name in 'DKR')) * row['D'] * row['K'] / 1e6:.1f}",
            ]
            lines.append([row["backend"], row["head"], *sizes, harness.spread(row), *ratios])
        tables[f"{mode}, D={base['D']}"] = lines
    lines = [["backend", "head", *(f"{mode}: time by {name}" for mode in MODES for name in sweeps), "memory by S"]]
    for backend, head in dict.fromkeys((row["backend"], row["head"]) for row in rows):
        own = [row for row in rows if (row["backend"], row["head"]) == (backend, head)]
        fitted = [exponent(own, mode, name, base, "seconds") for mode in MODES for name in sweeps]
        lines.append([backend, head, *fitted, exponent(own, "train", "S", base, "peak_mib")])
    if any(cell for line in lines[1:] for cell in line[2:]):
        tables["growth: exponents fitted over the sweeps"] = lines
    return tables


def sweep(rows, mode, name, base):
    """Returns the rows of a mode in which `name` varies and everything else is as in `base`, in order."""
    fixed = [other for other in base if other != name]
    same = [row for row in rows if row["mode"] == mode and all(row[other] in (0, base[other]) for other in fixed)]
    return sorted(same, key=lambda row: row[name])


def exponent(rows, mode, name, base, quantity):
    """Returns the slope of log quantity by log size, by least squares."""
    import numpy as np

    rows = sweep(rows, mode, name, base)
    if len(rows) < 2 or not rows[0][name]:
        return ""
    return f"{np.polyfit(*np.log([[row[name] for row in rows], [row[quantity] for row in rows]]), 1)[0]:.2f}"


def main():
    parser = harness.command_line(
        __doc__, measure_row, backends=tuple(BACKENDS), sweeps=tuple(SWEEPS), base=False, nodes=BASE["S"], repeats=9
    )
    parser.add_argument("--heads", nargs="+", choices=HEADS)
    parser.add_argument("--compilers", nargs="+", choices=COMPILERS, default=[], help="PyTorch once more with each")
    options = parser.parse_args()
    base = {**BASE, "S": options.nodes}
    is_base = options.base or options.quick
    sweeps = {"B": [base["B"]]} if is_base else {name: SWEEPS[name] for name in options.sweeps}
    heads = options.heads or (QUICK_HEADS if options.quick else HEADS)
    repeats = QUICK_REPEATS if options.quick else options.repeats
    ways = [*((backend, None) for backend in options.backends), *(("torch", each) for each in options.compilers)]
    rows = []
    for backend, compiler in ways:
        rows += measure(backend, grid(base, sweeps, heads), repeats, compiler, **ON_PROCESSOR)
    publish(options.output, "speed", report(rows, sweeps, base), [0], options.backends, harness.processor())


if __name__ == "__main__":
    main()
