"""Result files, `results/NAME.json`: the tables of a run, and how to run it again.

A benchmark ends with `publish`, which writes such a file and, beside it, a page of all its tables. `pages.py` puts the
tables of the files in `benchmarks/results` into the pages that name them.
"""

import importlib.metadata
import json
import pathlib
import shlex
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks.lib import harness

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results"


class Run(NamedTuple):
    """Run: command, date, machine and seeds, and its tables.

    Attributes:
        command: call that made the run.
        date: day, as 2026-11-23.
        versions: versions of the packages that matter, by name.
        machine: accelerator, or processor and its cores.
        seeds: integers; empty if nothing is drawn.
        commit: short name of the commit of the code.
        tables: lists of rows of strings by title, the first row the head; or texts.
        note: paragraphs of what else a reader should know.
    """

    command: str
    date: str
    versions: dict
    machine: str
    seeds: list
    commit: str
    tables: dict
    note: tuple = ()

    def module(self):
        """Returns the module that the command runs."""
        return self.command.removeprefix("python -m ").split()[0]


def publish(folder, name, tables, seeds, packages=None, machine=None):
    """Writes and prints the tables of this run as `name.json`, and as `name.md` for readers.

    `packages` are the packages whose versions matter besides Keras, by default the active backend.
    """
    import keras

    names = ["keras", *(packages or [keras.config.backend()])]
    command = shlex.join(["python", *sys.orig_argv[1:]])
    versions = {package: version_of(package) for package in names}
    run = this_run(command, tables, seeds, versions, machine or harness.machine())
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"{name}.json", run)
    text = page(name, run)
    (folder / f"{name}.md").write_text(text)
    print(f"\n{text}")


def this_run(command, tables, seeds, versions, machine):
    """Returns a run with today's date and the commit of this code."""
    return Run(command, time.strftime("%Y-%m-%d"), versions, machine, list(seeds), commit(), tables)


def write(path, run):
    """Writes a run as JSON, with a row of a table or a paragraph of the note on each line."""
    tables = {title: table if isinstance(table, str) else _Rows(table) for title, table in run.tables.items()}
    path.write_text(_text({**run._asdict(), "tables": tables, "note": _Rows(run.note)}) + "\n")


class _Rows(list):
    """List that is written with an item on each line."""


def _text(value, margin=""):
    """Returns JSON with each key of a long dict, and each row of a table, on a line of its own."""
    inner = f"{margin} "
    if isinstance(value, _Rows) and value:
        items, brackets = [_text(item, inner) for item in value], "[]"
    elif isinstance(value, dict) and len(json.dumps(value)) > 120:
        items, brackets = [f"{_text(key)}: {_text(item, inner)}" for key, item in value.items()], "{}"
    else:
        return json.dumps(value, ensure_ascii=False)
    lines = f",\n{inner}".join(items)
    return f"{brackets[0]}\n{inner}{lines}\n{margin}{brackets[1]}"


def read(path):
    """Returns the run of a file."""
    return Run(**json.loads(path.read_text()))


def page(name, run):
    """Returns Markdown of a run: how it was made, its note, and all its tables."""
    made = f"`{run.command}`; {about(run)}, commit {run.commit}."
    return "\n\n".join([f"# {name}", made, *run.note, text_of(run.tables)]) + "\n"


def text_of(tables):
    """Returns Markdown of all tables, each below its title."""
    return "\n\n".join(f"## {title}\n\n{render(table)}" for title, table in tables.items())


def render(table):
    """Returns Markdown of a table or of a text. In a table, the sign ± between no-break spaces replaces "+-"."""
    if isinstance(table, str):
        return table
    return harness.markdown([[cell.replace(" +- ", "\u00a0±\u00a0") for cell in row] for row in table])


def about(run):
    """Returns date, versions, machine and seeds, in a line."""
    versions = (f"{name} {version}" for name, version in run.versions.items())
    return ", ".join(filter(None, [run.date, *versions, run.machine, _seeds(run.seeds)]))


def _seeds(seeds):
    if len(seeds) < 2:
        return f"seed {seeds[0]}" if seeds else ""
    in_turn = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]} to {seeds[-1]}" if in_turn else f"seeds {', '.join(map(str, seeds))}"


def version_of(package):
    """Returns the installed version of a package, also if its name has the suffix `-cpu` or `-nightly`."""
    for suffix in ("", "-cpu", "-nightly"):
        for distribution in importlib.metadata.distributions(name=f"{package}{suffix}"):
            return distribution.version
    raise importlib.metadata.PackageNotFoundError(package)


def commit():
    """Returns the short name of the commit of this code, with `+` after changes, or "unknown" outside a repository."""
    name, changes = git("rev-parse", "--short=7", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    return name + ("+" if changes else "") if name else "unknown"


def git(*arguments):
    """Returns what a command of git prints, "" if it fails."""
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()
