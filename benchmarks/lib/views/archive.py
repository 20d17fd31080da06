"""The list of the benchmarks."""

import ast

from benchmarks import BENCHMARKS
from benchmarks.lib import results

SESSIONS = {"cost.gpu": "session `gpu`", "cost.speed": "session `speed`; `--quick`: a minute"}


def benchmarks(of):
    """Returns a row for each benchmark: the first line of its docstring, its time and its result files."""
    links = {}
    for name, run in runs().items():
        links.setdefault(run.module(), []).append(f"[{name}](results/{name}.md)")
    times = {name: row.time for name, row in BENCHMARKS.items()} | SESSIONS
    rows = [
        [f"`{name}`", first_line(name), times[name], ", ".join(links.get(f"benchmarks.{name}", []))]
        for name in sorted(times)
    ]
    return [["benchmark", "measures", "time on two cores", "results"], *rows]


def first_line(name):
    """Returns the first line of the docstring of a benchmark, without its point."""
    path = results.ROOT / "benchmarks" / name.replace(".", "/")
    path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.get_docstring(ast.parse(path.read_text())).splitlines()[0].removesuffix(".")


def runs():
    """Returns all runs of `benchmarks/results` by name."""
    return {path.stem: results.read(path) for path in sorted(results.FOLDER.glob("*.json"))}
