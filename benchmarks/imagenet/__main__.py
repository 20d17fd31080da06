"""Experiments of Collier et al. (CVPR 2021) on a folder of images.

python -m benchmarks.imagenet --config ilsvrc12 --data FOLDER [--set head=dense epochs=90 ...] [--seeds 0 1 ...]
python -m benchmarks.imagenet --sweep table1 --data FOLDER [--seeds 0 1 2 3 4]
python -m benchmarks.imagenet --config ilsvrc12 --dry-run      (on the backend of KERAS_BACKEND)

FOLDER has `train/CLASS/` and `validation/CLASS/`. A run has its own folder, with the metrics of each epoch in
`metrics.csv`. After any interruption, the same command resumes after the last finished epoch, with the weights of an
uninterrupted run. Every finished run adds a line to `CONFIG.jsonl` or `SWEEP.jsonl`. `--dry-run` makes a small network
of any configuration, and small images if you name no data.
"""

import pathlib

from benchmarks.imagenet.config import CONFIGS, changed, read_override, small
from benchmarks.imagenet.images import generate, read
from benchmarks.imagenet.paper import SWEEPS
from benchmarks.imagenet.training import train
from benchmarks.lib import harness, lines


def make_parser():
    parser = harness.parser_of(__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--config", choices=list(CONFIGS), help="which experiment")
    which.add_argument("--sweep", choices=list(SWEEPS), help="all rows of a table of the paper")
    parser.add_argument("--data", type=pathlib.Path, help="a folder with train and validation")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="other values of the configuration")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--workers", type=int, default=8, help="threads that read images")
    parser.add_argument("--dry-run", action="store_true", help="small, on generated images unless you name data")
    return parser


def configurations(options):
    """Returns the configuration of each row of the sweep, or of the only row."""
    rows = SWEEPS[options.sweep] if options.sweep else {" ".join([options.config, *options.set]): (options.config, {})}
    overrides = dict(map(read_override, options.set))
    made = {row: changed(CONFIGS[name], **own | overrides) for row, (name, own) in rows.items()}
    return {row: small(config) for row, config in made.items()} if options.dry_run else made


def main(arguments=None):
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.dry_run:
        options.output /= "dry-run"
        options.data = options.data or generate(options.output / "images")
    if options.data is None:
        parser.error("--data is needed, or --dry-run")
    training, validation = read(options.data)
    configs, name = configurations(options), options.sweep or options.config

    def make(row, seed):
        folder = options.output / name / f"{row}, seed {seed}"
        yield train(configs[row], training, validation, folder, seed, options.workers)[1]

    keys = [{"row": row, "seed": seed} for row in configs for seed in options.seeds]
    return lines.completed(options.output / f"{name}.jsonl", keys, make)


if __name__ == "__main__":
    main()
