"""Experiments: benchmarks whose results are lines of a file, so that an interrupted run resumes.

`run` reads the command line, makes the lines that are missing, and publishes their tables.
"""

import itertools

from benchmarks.lib import harness, lines, results

KEYS = ("set", "seed", "row")


def run(description, name, make, tables, options, quick=None, fixed=None, keys=KEYS, settings=(), packages=None):
    """Runs an experiment from the command line, and publishes its tables as `name`.

    Args:
        description: docstring of the module.
        name: name of the file of lines and of the result.
        make: function of the options and the values of a key, which yields the lines of the run.
        tables: function from the lines to tables by title.
        options: default values by name, see `harness.parser_of`.
        quick: values of a quick run, by name of the option.
        fixed: values that only a quick run changes.
        keys: names of what distinguishes the runs, see `product`; or a function from the options to dicts, one a run.
        settings: names of options that change every line, such as the size, so that each value has its own lines.
        packages: function from the lines to the packages whose versions matter besides Keras.
    """
    values = parser_of(description, options, quick, fixed).parse_args()
    runs = product(values, *keys) if isinstance(keys, tuple) else keys(values)
    records = completed(values, name, runs, make, settings)
    publish(values, name, tables(records), records, packages and packages(records))


def parser_of(description, options, quick=None, fixed=None):
    """Returns a parser that also has `--quick` and `--render`, see `run`.

    A quick run has its own folder, so that no full run takes its lines for done.
    """
    parser = harness.parser_of(description, **options)
    parser.set_defaults(**fixed or {})
    parser.add_argument("--quick", action="store_true", help="few examples and epochs, one seed, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only make the tables of the lines that are there")
    parse_all = parser.parse_args

    def parse_args(*arguments):
        values = parse_all(*arguments)
        if values.quick:
            vars(values).update(quick or {}, output=values.output / "quick")
        return values

    parser.parse_args = parse_args
    return parser


def product(options, *names):
    """Returns a dict for each combination: "set" has the values of `sets`, and "seed" has 0 to `seeds` - 1."""
    values = (getattr(options, f"{name}s") for name in names)
    every = itertools.product(*(range(each) if isinstance(each, int) else each for each in values))
    return [dict(zip(names, each, strict=True)) for each in every]


def completed(options, name, keys, make, settings=()):
    """Returns the lines of an experiment with these settings. Without `--render`, it first makes the missing ones."""
    own = {setting: getattr(options, setting) for setting in settings}
    runs = [] if options.render else [own | key for key in keys]
    file = options.output / f"{name}.jsonl"
    return lines.select(lines.completed(file, runs, lambda *key: make(options, *key[len(own) :])), **own)


def publish(options, name, tables, records, packages=None, seed="seed"):
    """Publishes the tables of lines with the values of a key as the seeds."""
    seeds = sorted({line[seed] for line in records if seed in line})
    results.publish(options.output, name, tables, seeds, packages)
