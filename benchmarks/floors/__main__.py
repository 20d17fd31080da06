"""How far is each head from what is possible? Tasks whose floors and ceilings are known.

python -m benchmarks.floors [--noises NAME ...] [--classes 10 100 1000] [--methods NAME ...] [--seeds 5] [--part 0/2]
                            [--draws 200000] [--output FOLDER] [--quick] [--render] (on the backend of KERAS_BACKEND)

Training and validation labels are noisy; the epoch is chosen by them, once by accuracy and once by likelihood. All
methods have the temperature of `training.py`. A training writes a line of JSON and is not repeated if its line is
there; so do the bounds of a task. With 1000 classes there is one seed.
"""

import json

from benchmarks.floors import bounds, report, tasks, training
from benchmarks.lib import harness
from benchmarks.lib.lines import read

MOST = 10**6  # labels that are drawn to check the bounds
ONE_SEED = 1000  # classes from which on there is one


def wanted(options):
    """The keys of all trainings; those of a seed stand together, so that seeds are finished one after the other."""
    return [
        (noise, units, per_class, method, seed)
        for seed in range(options.seeds)
        for units, per_class in tasks.SIZES
        if units in options.classes and (units < ONE_SEED or not seed)
        for noise in options.noises
        for method in options.methods
    ]


def key_of(line):
    """The key of a training."""
    return tuple(line[name] for name in ("noise", "units", "per_class", "method", "seed"))


def train(options):
    """The trainings of a part that are not there."""
    part, parts = map(int, options.part.split("/"))
    done = set(map(key_of, read(options.output, "floors-*.jsonl")))
    for key in [key for key in wanted(options)[part::parts] if key not in done]:
        line = training.run(*key)
        append(options.output / f"floors-{part}.jsonl", line)
        print(f"{key}: {line['seconds']:.0f} s", flush=True)


def compute(options):
    """The bounds that are not there, and their check by drawn labels."""
    file = options.output / "bounds.jsonl"
    done = {(line["noise"], line["units"]) for line in read(options.output, file.name)}
    for units in options.classes:
        for name in options.noises:
            if (name, units) not in done:
                noise, drawn = tasks.NOISES[name], min(5 * options.draws, MOST if units < ONE_SEED else options.draws)
                ways = {
                    "bounds": bounds.bounds(noise, units, options.draws),
                    "simulated": bounds.simulated(noise, units, drawn),
                }
                append(file, {"noise": name, "units": units, "draws": options.draws, "drawn labels": drawn, **ways})


def append(path, line):
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def options_of(arguments=None):
    """The command line."""
    parser = harness.parser_of(__doc__)
    sizes = list(dict.fromkeys(units for units, _ in tasks.SIZES))
    parser.add_argument("--noises", nargs="+", choices=tasks.NOISES, default=list(tasks.NOISES), metavar="NAME")
    parser.add_argument("--classes", nargs="+", type=int, choices=sizes, default=sizes)
    parser.add_argument("--methods", nargs="*", choices=training.METHODS, default=training.METHODS, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", default="0/1", help="I/N: every N-th training, from the I-th, for several processes")
    parser.add_argument("--draws", type=int, default=200_000, help="of examples, for a bound")
    parser.add_argument("--quick", action="store_true", help="one small task, two methods, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only make the tables and the plot of what is there")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(noises=["by group"], classes=[10], methods=["Dense", "diagonal"], seeds=1, draws=20_000)
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = options_of()
    if not options.render:
        compute(options)
        train(options)
    report.render(options.output)


if __name__ == "__main__":
    main()
