"""Small models of KerasHub and heads that `python -m keras_het parity` compares across backends, and what it costs.

python -m benchmarks.parity [--parts kinds hub heads cost] [--quick] [--output FOLDER]

Each model is saved once, and the command's function compares it on three backends. `kinds` are the numbers of
`nox -s parity`, with the largest difference of each kind. Text models are trained by SGD, because Adam on TensorFlow
moves an Embedding too far if a token occurs twice. `cost` measures the time of the command on large models, and the
peak memory of the process of each backend. Each part has a file of its own.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.lib import harness
from benchmarks.lib.results import publish

BACKENDS = ["jax", "tensorflow", "torch"]
MODELS = ("hub", "heads")
PARTS = ("kinds", *MODELS, "cost")
MODULE = "benchmarks.lib.parity_models"
SAVE = f"import sys; from {MODULE} import *; part, name, path = sys.argv[1:]; found = globals()[part][name]; "
SAVE += "save(found, path)"


def save(part, name, folder):
    """Saves a model in a process of its own, and returns the path."""
    path = pathlib.Path(folder) / "model.keras"
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", SAVE, part, name, str(path)], env=environment, check=True)
    return path


def compared(part, name, folder):
    """Returns the comparison of a model, or the text of its error, and seconds."""
    from keras_het.parity.processes import compare_file

    start, path = time.monotonic(), save(part, name, folder)
    try:
        return compare_file(str(path), BACKENDS, modules=[MODULE]), time.monotonic() - start
    except ValueError as error:
        return str(error), time.monotonic() - start


def row(name, result, seconds):
    """Returns the verdict on a model, with the worst row in units of its limit."""
    if isinstance(result, str):
        return [name, result.splitlines()[0][:100], "", "", "", "", f"{seconds:.0f}"]
    verdict = ["agree", "differ", "failed", "some arrays cannot be judged"][result.status()]
    worst = result.worst
    times = f"{worst.difference / worst.rounding:.1f}" if worst.rounding else ""
    figures = [f"{worst.difference:.1e}", f"{worst.limit:.1e}", times]
    return [name, verdict, f"{worst.part}: {worst.name}", *figures, f"{seconds:.0f}"]


def agreement(part, names, folder):
    lines = [["model", "verdict", "worst row", "difference", "limit", "times rounding", "seconds"]]
    for name in names:
        lines.append(row(name, *compared(part.upper(), name, folder)))
        print(harness.markdown(lines[-1:]), flush=True)
    return lines


def cost(names, folder):
    """Returns time and peak memory of the command on large models."""
    peaks = [f"peak memory on {backend}, GB" for backend in BACKENDS]
    lines = [["model", "weights, GB", "minutes", "processor minutes", *peaks, "exit status"]]
    for name in names:
        path = save("COST", name, folder)
        start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        status, peaks = run_command(path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = sum(getattr(after, kind) - getattr(before, kind) for kind in ("ru_utime", "ru_stime"))
        minutes = [f"{each / 60:.1f}" for each in (time.monotonic() - start, seconds)]
        memory = [f"{peaks[backend] / 1e9:.2f}" for backend in BACKENDS]
        lines.append([name, f"{path.stat().st_size / 1e9:.2f}", *minutes, *memory, str(status)])
        print(harness.markdown(lines[-1:]), flush=True)
    return lines


def run_command(path):
    """Runs the command on a model, and returns its exit status and the peak memory of each backend's processes."""
    command = [sys.executable, "-m", "keras_het", "parity", str(path), "--backends", *BACKENDS]
    peaks = dict.fromkeys(BACKENDS, 0)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for child in pathlib.Path(f"/proc/{process.pid}/task").glob("*/children"):
                for pid in child.read_text().split():
                    backend, memory = usage(pathlib.Path("/proc", pid))
                    peaks[backend] = max(peaks.get(backend, 0), memory)
            time.sleep(0.1)
    return process.returncode, peaks


def usage(process):
    """Returns the backend of a child of the command, or "", and its peak memory until now."""
    try:
        environment = dict(line.split("=", 1) for line in (process / "environ").read_text().split("\0") if "=" in line)
        is_child = "keras_het.parity.child" in (process / "cmdline").read_text()
        peak = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # it has ended
        return "", 0
    return environment.get("KERAS_BACKEND", "") if is_child else "", 1024 * int(peak.split()[1])


def kinds(folder):
    """Returns the largest difference of each kind of number between two backends, over all heads of `tests.parity`."""
    files = {backend: str(pathlib.Path(folder) / f"{backend}.npz") for backend in BACKENDS}
    for backend, file in files.items():
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run([sys.executable, "-m", "tests.parity", "write", file], env=environment, check=True)
    from tests import parity

    return parity.table(parity.compare(*map(parity.Recording.load, files.values())))


def main():
    parser = harness.command_line(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    from benchmarks.lib import parity_models

    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            if part == "kinds":
                table = kinds(folder)
            else:
                names = list(getattr(parity_models, part.upper()))[: 1 if options.quick else None]
                table = cost(names, folder) if part == "cost" else agreement(part, names, folder)
            publish(options.output, f"parity_{part}", {part: table}, [0], BACKENDS, harness.processor())


if __name__ == "__main__":
    main()
