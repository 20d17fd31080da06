"""Experiments of Collier et al. (CVPR 2021) on a folder of images.

python -m benchmarks.imagenet --config ilsvrc12 --data FOLDER [--head dense] [--set samples=1000 ...] [--seed 0]
python -m benchmarks.imagenet --sweep table1 --data FOLDER [--seeds 5] [--list] [--config jft, of a sweep with two]
python -m benchmarks.imagenet --config ilsvrc12 --dry-run      (on the backend of KERAS_BACKEND)

FOLDER has `train/CLASS/` and `validation/CLASS/`, or is `tfds:NAME`. Every epoch adds a line to `metrics.jsonl` in the
folder of the run. After any interruption, the same command resumes at the last saved step, with the weights of an
uninterrupted run. Every finished run of a sweep adds a line to `SWEEP.jsonl`. `--dry-run` makes a small network of any
configuration, and small images if you name no data.
"""

import json
import shlex

from benchmarks.imagenet import images
from benchmarks.imagenet.config import CONFIGS, HEADS, read_override, small
from benchmarks.imagenet.paper import SWEEPS, Run, listed
from benchmarks.imagenet.training import append, read_lines, train
from benchmarks.lib import harness


def make_parser():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--config", choices=list(CONFIGS), help="which experiment")
    parser.add_argument("--sweep", choices=list(SWEEPS), help="all rows of a table of the paper")
    parser.add_argument("--list", action="store_true", help="only print the runs")
    parser.add_argument("--data", help="a folder with train and validation, or tfds:NAME")
    parser.add_argument("--head", choices=HEADS, help="another head; dense is the homoscedastic control")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="other values of the configuration")
    parser.add_argument("--seed", type=int, default=0, help="of one run")
    parser.add_argument("--seeds", type=int, default=5, help="of a sweep: 0 to one less")
    parser.add_argument("--save-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--workers", type=int, default=8, help="threads that read images")
    parser.add_argument("--dry-run", action="store_true", help="small, on generated images unless you name data")
    return parser


def planned(options, parser):
    """Yields the folder of each run, the run and its seed."""
    overrides = dict(map(read_override, options.set)) | ({"head": options.head} if options.head else {})
    if options.sweep is None:
        if options.config is None:
            parser.error("--config or --sweep is needed")
        run = Run(options.config, options.config, overrides)
        return [(options.output / f"{options.config}-seed{options.seed}", run, options.seed)]
    if overrides:
        parser.error("--set and --head change one run, not a sweep")
    runs = [(i, run) for i, run in enumerate(SWEEPS[options.sweep]) if options.config in (None, run.config)]
    if len({run.config for _, run in runs}) != 1 and not (options.list or options.dry_run):
        parser.error(f"--config must be one of {options.sweep}: its rows are of different data")
    seeds = range(options.seeds)
    return [(options.output / f"{options.sweep}-{i}-seed{seed}", run, seed) for i, run in runs for seed in seeds]


def main(arguments=None):
    parser = make_parser()
    options = parser.parse_args(arguments)
    runs = planned(options, parser)
    if options.list:
        print("\n".join(listed(options.sweep) if options.sweep else [str(runs[0][1].made())]))
        return
    if options.dry_run and options.data is None:
        options.data = str(options.output / "images")
        images.generate(options.data)
    if options.data is None:
        parser.error("--data is needed, or --dry-run")
    training, validation = images.sources(options.data)
    for folder, run, seed in runs:
        config = small(run.made()) if options.dry_run else run.made()
        print(f"{run.row}, seed {seed}, in {shlex.quote(str(folder))}", flush=True)
        _, lines = train(config, training, validation, folder, seed, options.save_every, options.workers)
        print(json.dumps(lines[-1]), flush=True)
        if options.sweep:
            add_result(options.output, options.sweep, {"row": run.row, "seed": seed}, lines[-1])


def add_result(folder, sweep, key, line):
    """Adds the last line of a run to the lines of the sweep, once."""
    name = f"{sweep}.jsonl"
    if not any(key.items() <= other.items() for other in read_lines(folder, name)):
        append(folder, {**key, **line}, name)


if __name__ == "__main__":
    main()
