"""Methods against kinds of wrong labels, all with the same number of trials, chosen by noisy labels.

python -m benchmarks.arena [--data digits] [--methods NAME ...] [--noises NAME ...] [--heads NAME ...] [--seeds 5]
                           [--processes 2] [--output FOLDER] [--name NAME] [--quick] [--render]
                           (on the backend of KERAS_BACKEND)

Training and validation labels are noisy, the test is clean and only measured. A method has three trials for its own
strength; the size of a network, the optimizer with its weight decay (decay.py says how it was chosen), batches
and epochs are those of all. Some rows train more than that: two networks, or a first one to learn something of the
labels. After every epoch the accuracy on noisy validation labels is taken, and the trial and the epoch of the largest,
of equals the first, are the method's: no likelihood, which a robust loss, or one that knows T, does not model.

Every training writes a line of JSON and is not repeated if its line is there; `--render` makes all tables and the heat
map of the lines that are asked for. `--name` is for a part of the methods: its result stands beside that of the whole.
Without `--part I/N` it starts a process for each core, and shows what they have done and the time that is left.
"""

import json
import os
import subprocess
import sys
import time

import keras

from benchmarks.arena import report
from benchmarks.arena.methods import BASE, METHODS, PLAIN
from benchmarks.arena.training import run
from benchmarks.arena.trial import HEADS
from benchmarks.lib import harness, noises
from benchmarks.lib.lines import read
from benchmarks.lib.results import commit

QUICK = {"methods": [PLAIN, BASE], "noises": ["none", "symmetric"], "seeds": 2}
QUICK_EPOCHS = 3
LOOK = 2.0  # seconds between two looks at what the processes have done
KEY = ("data", "noise", "seed", "head", "method", "strength")


def wanted(options):
    """The keys of all trainings with their methods, in a list for each method, head and seed.

    Those of a list are alike to compile.
    """
    chosen = [method for method in METHODS if method.name in options.methods]
    return [
        [
            (method, dict(zip(KEY, (options.data, noise, seed, head, method.name, strength), strict=True)))
            for noise in options.noises
            for strength in method.strengths
        ]
        for seed in range(options.seeds)
        for head in options.heads
        for method in chosen
        if head in method.heads
    ]


def key_of(line):
    """The key of a training."""
    return json.dumps([line[name] for name in KEY])


def missing(options, part=0, parts=1):
    """The trainings of a part whose lines are not there."""
    present = {key_of(line) for line in read(options.output, "arena-*.jsonl")}
    return [pair for group in wanted(options)[part::parts] for pair in group if key_of(pair[1]) not in present]


def work(options, part, parts):
    """One part of the trainings, in this process."""
    keep_compiled(options.output / "compiled")
    about = {"about": harness.describe(), "commit": commit()}
    for method, key in missing(options, part, parts):
        line = run(method, key, QUICK_EPOCHS if options.quick else None) | about
        with (options.output / f"arena-{part}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        keras.utils.clear_session(free_memory=False)  # to collect all garbage takes as long as a training


def work_side_by_side(options):
    """All parts, a process each, and a bar of what is done and of the time that is left."""
    total, added = len(missing(options)), AddedLines(options.output)
    command = [sys.executable, "-m", "benchmarks.arena", *sys.argv[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    parts = [f"{part}/{options.processes}" for part in range(options.processes)]
    processes = [subprocess.Popen([*command, "--part", part], env=environment) for part in parts if total]
    bar = keras.utils.Progbar(total, unit_name="training")
    while any(process.poll() is None for process in processes):
        time.sleep(LOOK)
        done = added.count()
        bar.update(done, finalize=done == total)
    if any(process.wait() for process in processes):
        raise RuntimeError(
            "A process of the arena failed; what it says is above. Start again: what is done is not repeated"
        )


class AddedLines:
    """Counts the lines that files of a folder get; of what was read once only the length is kept."""

    def __init__(self, folder):
        self.folder, self.total = folder, 0
        self.seen = {path: path.stat().st_size for path in folder.glob("arena-*.jsonl")}

    def count(self):
        """All lines since it was made."""
        for path in self.folder.glob("arena-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self.seen.get(path, 0))
                added = file.read()
            self.seen[path] = self.seen.get(path, 0) + len(added)
            self.total += added.count(b"\n")
        return self.total


def keep_compiled(folder):
    """On JAX: programs that differ in weights and labels alone are compiled once, whatever the process."""
    if keras.config.backend() == "jax":
        import jax

        jax.config.update("jax_compilation_cache_dir", str(folder.resolve()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def options_of(arguments=None):
    """The command line."""
    parser = harness.parser_of(__doc__)
    names = [method.name for method in METHODS]
    parser.add_argument("--data", choices=list(noises.DATA), default="digits")
    parser.add_argument("--methods", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--noises", nargs="+", choices=list(noises.NOISES), default=list(noises.NOISES), metavar="NAME")
    parser.add_argument("--heads", nargs="+", choices=list(HEADS), default=list(HEADS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="side by side (default: one for each core)"
    )
    parser.add_argument("--name", help="of the result files (default: arena_ and the data)")
    parser.add_argument("--part", help="I/N: every N-th method, head and seed, from the I-th, in this process")
    parser.add_argument(
        "--quick", action="store_true", help="two methods, noises and seeds and few epochs, to see that it runs"
    )
    parser.add_argument(
        "--render", action="store_true", help="only make tables and figures of the lines that are there"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK, output=options.output / "quick")
    options.name = options.name or f"arena_{options.data}"
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = options_of()
    if options.part:
        work(options, *map(int, options.part.split("/")))
        return
    if not options.render:
        work_side_by_side(options)
    asked = {"data": [options.data], "noise": options.noises, "head": options.heads, "method": options.methods}
    report.render(options.output, options.name, asked)


if __name__ == "__main__":
    main()
