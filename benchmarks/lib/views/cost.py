"""Tables of times and memory."""

from benchmarks.lib.views.rows import dicts


def beside_edward2(of):
    """Returns time and memory of the fastest mode of each package, on each processor."""
    packages = ("edward2", "keras_het")
    lines = [["one training step", "processor", *(f"{name}: {unit}" for unit in ("ms", "MiB") for name in packages)]]
    for name, words in PEERS.items():
        for result, processor in PROCESSORS.items():
            modes = [row for row in dicts(of(result, "seconds and memory of a step")) if row["head"] == name]
            rows = [min((row for row in modes if row["package"] == package), key=_step) for package in packages]
            memory = (row["over S=1 MiB"] for row in rows)
            lines.append([words, processor, *(f"{_step(row):.0f}" for row in rows), *memory])
    return lines


PEERS = {
    "softmax full": "softmax, full",
    "softmax parameter-efficient": "softmax, parameter-efficient",
    "sigmoid parameter-efficient": "sigmoid, parameter-efficient",
}
PROCESSORS = {"peers": "AMD EPYC", "peers_intel": "Intel Xeon"}


def _step(row):
    return float(row["step ms (quartiles)"].split(" ")[0])


def nodes(of):
    """Returns the gains and costs of more nodes, a column for each number of nodes."""
    trained = {row["trained"]: row for row in dicts(of("nodes", "training with S nodes"))}
    predicted = {row["S"]: row for row in dicts(of("nodes", "predicting with S nodes, after training with 256"))}
    chosen = next(name for name in trained if name.startswith("Dense, selected"))
    counts = ("16", "64", "256")
    lines = [["nodes", *counts, "`Dense`, tuned"]]
    for name in ("NLL", "accuracy", "training noise", "ms per step"):
        cells = [trained[f"S = {count}"][name] for count in counts]
        dense = "" if name == "training noise" else trained[chosen][name]
        lines.append([f"in training: {NODES.get(name, name)}", *cells, dense])
    for name in ("error", "accuracy", "ms per batch"):
        cells = [predicted[count][name] for count in counts]
        lines.append([f"in prediction, trained with 256: {NODES.get(name, name)}", *cells, ""])
    return lines


NODES = {"training noise": "difference of log p between two runs", "error": "error of log p"}


SPEEDS = ("train, D=2048", "predict, D=2048")


def backbone(of):
    """Returns the fraction of a prediction that the head takes, a column for each backend."""
    backends = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
    tables = [dicts(of(f"backbone_{backend}", "share of the head in a prediction")) for backend in backends]
    lines = [["head", *(f"{name}: {figure}" for name in backends.values() for figure in ("ms", "head's share"))]]
    for rows in zip(*tables, strict=True):
        lines.append([rows[0]["head"], *(row[figure] for row in rows for figure in ("whole ms", "share"))])
    return lines


def compilers(of):
    """Returns the times of a step and a prediction on JAX, and on PyTorch with and without each compiler."""
    columns = (f"{mode}: {figure}" for mode in ("step", "predict") for figure in ("ms", "times JAX"))
    lines = [["head", "nodes", "backend", *columns]]
    for nodes in ("256", "1024"):
        steps, predictions = (dicts(of(f"speed_compilers_{nodes}", title)) for title in SPEEDS)
        for head in dict.fromkeys(row["head"] for row in steps):
            own = [[row for row in rows if row["head"] == head] for rows in (steps, predictions)]
            for pair in zip(*own, strict=True):
                if "compile_blocks" in pair[0]["backend"]:  # of an earlier version
                    continue
                times = [float(row["ms (quartiles)"].split()[0]) for row in pair]
                jax = [float(rows[0]["ms (quartiles)"].split()[0]) for rows in own]
                figures = [x for ms, least in zip(times, jax, strict=True) for x in (f"{ms:.0f}", f"{ms / least:.1f}")]
                lines.append([head, nodes, pair[0]["backend"], *figures])
    return lines


TRIED = {  # parts of benchmarks.parity, in words
    "hub": "KerasHub",
    "heads": "heads of keras_het",
}


def parity_verdicts(of):
    """Returns how many models agree on three backends, and which do not, a row for each kind of model."""
    lines = [["models", "tried", "agree", "do not agree"]]
    for part, words in TRIED.items():
        rows = dicts(of(f"parity_{part}", part))
        others = [f"{row['model']}: {row['verdict']}" for row in rows if row["verdict"] != "agree"]
        lines.append([words, str(len(rows)), str(len(rows) - len(others)), "; ".join(others)])
    return lines
