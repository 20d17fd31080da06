"""Planted bugs: the tests that have one, and new ones that the tests must find.

`python -m tests.planted list` lists the tests with the mark `planted` by where they run.

`python -m tests.planted plant` plants the bugs of `BUGS` in a copy of the repository, one at a time, and says which
tests of the default check find them. `--suite thorough` adds those of `nox -s thorough`; `--keep-going` goes on after a
bug that no test finds. `plant --drawn 10 --seed 0` draws the bugs instead: operators of the package that are turned
round, which the tests of their room must find on PyTorch.
"""

import argparse
import ast
import collections
import contextlib
import io
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import pytest

from tests.marks import NEEDED, ONCE, not_collected, runs_here

ROOT = pathlib.Path(__file__).parent.parent
BACKENDS = ("torch", "jax", "tensorflow")  # the quickest first
NOT_COPIED = (".git", ".nox", ".*_cache", "__pycache__", "build", "dist")
ACCELERATOR = "test_pretended_accelerator.py"


class Bug(NamedTuple):
    """A change of one file of the package that its tests must find.

    Attributes:
        name: what is wrong.
        file: where, below the root of the repository.
        old: the right text, once in the file.
        new: the wrong one.
        tests: folders or files below `tests` that are about this file.
        backends: those that can show it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    backends: tuple[str, ...] = BACKENDS


BUGS = (
    Bug(
        "a sign of the gradient of the mean softmax",
        "keras_het/ops/softmax.py",
        "(upstream[..., None] - p[..., None] * (of_upstream / total))",
        "(upstream[..., None] + p[..., None] * (of_upstream / total))",
        ("ops",),
    ),
    Bug(
        "rows of a batch that blocks bring into another order",
        "keras_het/ops/streaming.py",
        "return ops.swapaxes(ops.reshape(padded, (block_size, -1, *ops.shape(x)[1:])), 0, 1)",
        "return ops.reshape(padded, (-1, block_size, *ops.shape(x)[1:]))",
        ("ops",),
        ("jax", "tensorflow"),  # PyTorch cuts blocks by slices
    ),
    Bug(
        "the branch of PyTorch taken by the other backends",
        "keras_het/ops/streaming.py",
        '    if keras.config.backend() == "torch":\n        return _by_python',
        '    if keras.config.backend() != "torch":\n        return _by_python',
        ("ops", "layers"),
        ("tensorflow",),  # where the size of a batch may be unknown
    ),
    Bug(
        "factors that devices share instead of classes",
        "keras_het/covariances/parameter_efficient.py",
        '"factor/kernel": 0}',
        '"factor/kernel": 1}',
        ("distribution",),
        ("jax",),  # which alone splits weights
    ),
    Bug(
        "a key of the noise that is read after the clock has moved",
        "keras_het/layers/heteroscedastic_dense.py",
        "step = ops.convert_to_tensor(self.step) * 1 ",
        "step = ops.convert_to_tensor(self.step) ",
        ("layers",),
        ("torch", "tensorflow"),  # where an assignment changes the tensor
    ),
    Bug(
        "a loss that forgets, when it is loaded, that it had indices",
        "keras_het/losses/state.py",
        "        self.is_in_use = self.is_in_use or bool(found)\n",
        "",
        ("losses",),
    ),
    Bug(
        "a calibration error divided by the number of examples, not by their weights",
        "keras_het/metrics/scores.py",
        "self._weight.add(ops.sum(examples.weights))",
        'self._weight.add(ops.sum(ops.cast(examples.weights != 0, "float32")))',
        ("metrics",),
    ),
    Bug(
        "the link of one sigmoid kept for several classes",
        "keras_het/models/conversion.py",
        "found = None if head.units == 1 < units else head.link ",
        "found = head.link ",
        ("models",),
    ),
    Bug(
        "a variance divided by the temperature and not by its square",
        "keras_het/reading/head_noise.py",
        "matrix.divided(self.head.temperature**2)",
        "matrix.divided(self.head.temperature)",
        ("reading", "callbacks", "explain"),
    ),
    Bug(
        "a mean over held-out examples that weighs a small last batch as the others",
        "keras_het/training/held_out.py",
        "total += len(labels) * float(np.mean(ops.convert_to_numpy(measure(labels, predictions))))\n"
        "                count += len(labels)",
        "total += float(np.mean(ops.convert_to_numpy(measure(labels, predictions))))\n                count += 1",
        ("training",),
    ),
    Bug(
        "flips to the class before instead of the next one",
        "keras_het/labels/synthetic.py",
        "np.roll(np.eye(num_classes), 1, axis=1)",
        "np.roll(np.eye(num_classes), 1, axis=0)",
        ("labels/test_matrices.py",),
    ),
    Bug(
        "a discriminant that has seen the fold that it predicts",
        "keras_het/label_noise/discriminant.py",
        "solved(whole.without(part))",
        "solved(whole)",
        ("label_noise",),
    ),
    Bug(
        "votes that are written where the table has none",
        "keras_het/labels/votes.py",
        "place[is_given] for place in places)] = labels[is_given]",
        "place[is_given] for place in places)] = labels[: is_given.sum()]",
        ("labels/test_votes.py",),
    ),
    Bug(
        "a vote that judges itself",
        "keras_het/training/vote_issues.py",
        "joint[examples[block]] - log_t[who[block], given[block]]",
        "joint[examples[block]]",
        ("training/test_votes.py",),
    ),
    Bug(
        "a candidate that is trained on what held-out votes say",
        "keras_het/training/task.py",
        "_with_verified(most_probable(self.votes, self.units), self)",
        "np.eye(self.units)[self.y]",
        ("training/test_votes.py",),
    ),
    Bug(
        "texts and names that a page runs as HTML",
        "keras_het/report/page.py",
        "autoescape=True",
        "autoescape=False",
        ("report",),
        ("torch",),  # the page is made there alone
    ),
    Bug(
        "a text of an example that a spreadsheet computes",
        "keras_het/labels/corrections.py",
        "[safe_cell(value(row)) for row in issues.index]",
        "[value(row) for row in issues.index]",
        ("report",),
        ("torch",),  # the same
    ),
)


def changed(source, bug):
    """The source of a file with a bug; raises a ValueError if the right text is not in it exactly once."""
    if (count := source.count(bug.old)) != 1:
        raise ValueError(f"`old` must be in {bug.file} once: {bug.old!r}. Received: {count} places")
    return source.replace(bug.old, bug.new)


def place_of(path, marks):
    """Where a test runs.

    Args:
        path: of its file, below the root of the repository.
        marks: a set of names.
    """
    house, folder = path.parts[:2]
    if house == "benchmarks":
        return "only in the session bench_tests"
    if f"{house}/{folder}" in NEEDED:
        return f"only in the session {'docs' if folder == 'site' else folder}"
    if folder == ACCELERATOR:
        return "only on the pretended accelerator"
    if "thorough" in marks:
        return "only in the session thorough"
    where = [backend for backend in BACKENDS if runs_here(marks, backend)]
    return "on all three backends" if len(where) == len(BACKENDS) else f"on {' and '.join(where)}"


class _Collected:
    """A plugin of pytest that keeps what was collected."""

    def __init__(self):
        self.items = []

    def pytest_collection_finish(self, session):
        self.items = session.items


def collected():
    """The places of the marked tests that pytest collects here, `{place: {name: cases}}`."""
    found, plugin, output = collections.defaultdict(collections.Counter), _Collected(), io.StringIO()
    arguments = ["--collect-only", "--thorough", "-m", "planted", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    with contextlib.redirect_stdout(output):
        status = pytest.main([*arguments, str(ROOT / "tests"), str(ROOT / "benchmarks" / "tests")], plugins=[plugin])
    if status:
        raise RuntimeError(output.getvalue())
    for item in plugin.items:
        path = item.path.relative_to(ROOT)
        marks = {mark.name for mark in item.iter_markers()}
        found[place_of(path, marks)][f"{path.as_posix()}::{item.nodeid.split('::', 1)[1].split('[')[0]}"] += 1
    return found


def marked(source):
    """The names of the tests of a source that have the mark by a decorator."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if "pytest.mark.planted" in map(ast.unparse, node.decorator_list)]


def read(ignored):
    """The places of the marked tests in files that pytest does not collect here, for want of a package.

    Args:
        ignored: files and folders, below the root of the repository.
    """
    found = collections.defaultdict(collections.Counter)
    for name in ignored:
        root = ROOT / name
        for file in sorted(root.rglob("test_*.py")) if root.is_dir() else [root]:
            path = file.relative_to(ROOT)
            for test in marked(file.read_text(encoding="utf-8")):
                found[place_of(path, {"once"})][f"{path.as_posix()}::{test}"] += 1
    return found


def list_tests():
    """Prints every test with a planted bug, by place."""
    found = collected()
    for place, names in read(not_collected()).items():
        found[place].update(names)
    for place, names in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{place}: {len(names)}")
        for name, cases in sorted(names.items()):
            print(f"    {name}" + (f", {cases} cases" if cases > 1 else ""))
    print(f"{sum(map(len, found.values()))} tests with a planted bug")


def first_failure(folder, backend, arguments):
    """The first test that fails, or the file that cannot be collected; None if all pass.

    Args:
        folder: the root of a repository.
        backend: on which the tests run.
        arguments: of pytest.
    """
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(folder), "MPLBACKEND": "agg"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a file that changes twice in a second would be taken for the old one
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    if failed is None:
        raise RuntimeError(f"pytest must run tests: {' '.join(arguments)}\n{run.stdout}\n{run.stderr}")
    return failed[1]


def caught_by(bug, folder, thorough=False):
    """The first test that finds a bug in a copy of the repository, and its backend; None if no test does.

    The copy is right again at the end, and the test must pass in it.
    """
    file, options = folder / bug.file, ["--thorough"] * thorough
    source = file.read_text(encoding="utf-8")
    for backend in bug.backends:
        file.write_text(changed(source, bug), encoding="utf-8")
        try:
            test = first_failure(folder, backend, [*options, *(f"tests/{name}" for name in bug.tests)])
        finally:
            file.write_text(source, encoding="utf-8")
        if test is None:
            continue
        again = [*options, test] if "::" in test else ["--collect-only", test]
        if first_failure(folder, backend, again):
            raise RuntimeError(f"{test} fails on {backend} without the bug, too")
        return test, backend
    return None


TURNED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def drawn(count, seed, root=ROOT):
    """Bugs in random places: an operator of a line of the package is turned round, such as < to >= or + to -."""
    places = []
    for path in sorted((root / "keras_het").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        room = path.relative_to(root / "keras_het").parts[0]
        if (root / "tests" / room).is_dir():
            places += [(path, room, *turned) for turned in turned_lines("\n".join(lines), lines)]
    chosen = random.Random(seed).sample(places, count)
    return [
        Bug(f"{old.strip()} -> {new.strip()}", path.relative_to(root).as_posix(), old, new, (room,), (ONCE,))
        for path, room, old, new in chosen
    ]


def turned_lines(source, lines):
    """Lines of a source that stand there once, outside errors and types, and what they are with an operator turned."""
    tree = ast.parse(source)
    left_out = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Raise) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        operators = getattr(node, "ops", [getattr(node, "op", None)])
        if (
            id(node) in left_out
            or len(operators) != 1
            or type(operators[0]) not in TURNED
            or node.end_lineno != node.lineno
        ):
            continue
        line, text = lines[node.lineno - 1], ast.get_source_segment(source, node)
        other = TURNED[type(operators[0])]()
        changes = {"ops": [other]} if hasattr(node, "ops") else {"op": other}
        turned = ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), **changes}))
        if " | None" not in text and source.count(f"\n{line}\n") == 1 and line.count(text) == 1:
            yield f"\n{line}\n", f"\n{line.replace(text, turned)}\n"


def plant(bugs=BUGS, root=ROOT, thorough=False, keep_going=False):
    """Plants bugs in a copy of the repository, one at a time, and prints what finds them; returns how many are found.

    Args:
        bugs: to be planted.
        root: of the repository.
        thorough: whether tests run that are not in the default check.
        keep_going: whether to go on after a bug that no test finds.
    """
    count = 0
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / "copy"
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for bug in bugs:
            start = time.monotonic()
            found = caught_by(bug, folder, thorough)
            count += found is not None
            words = f"found on {found[1]} by {found[0]}" if found else f"NOT FOUND on {', '.join(bug.backends)}"
            print(f"{bug.file}: {bug.name}: {words}, {time.monotonic() - start:.0f} s", flush=True)
            if found is None and not keep_going:
                break
    print(f"{count} of {len(bugs)} bugs found")
    return count


def main(arguments=None):
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the tests with a planted bug, and where they run")
    command = commands.add_parser("plant", help="plant new bugs, and see whether the tests find them")
    command.add_argument("--suite", choices=["default", "thorough"], default="default")
    command.add_argument("--keep-going", action="store_true", help="go on after a bug that no test finds")
    command.add_argument("--drawn", type=int, default=0, metavar="N", help="of N operators instead of those named here")
    command.add_argument("--seed", type=int, default=0, help="of what is drawn")
    given = parser.parse_args(arguments)
    if given.command == "list":
        list_tests()
        return 0
    bugs = drawn(given.drawn, given.seed) if given.drawn else BUGS
    return int(plant(bugs, thorough=given.suite == "thorough", keep_going=given.keep_going) < len(bugs))


if __name__ == "__main__":
    sys.exit(main())
