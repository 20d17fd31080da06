"""Planted bugs: the tests that have one, and bugs of the package that the tests must detect.

`python -m tests.planted list` lists the tests with the mark `planted`. `python -m tests.planted plant` plants the bugs
of `BUGS` in a copy of the repository, one at a time, and prints which test detects each. `--thorough` also runs the
tests that are not in the default check.
"""

import argparse
import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
TESTS = ("tests", "benchmarks/tests", "docs/tests")
BACKENDS = ("torch", "jax", "tensorflow")  # the quickest first
NOT_COPIED = (".git", ".nox", ".*_cache", "__pycache__", "build", "dist")


class Bug(NamedTuple):
    """Change of one file of the package, `old` by `new`, that its tests must detect on one of the backends."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    backends: tuple[str, ...] = BACKENDS


BUGS = (
    Bug("a sign of the gradient of the mean softmax", "keras_het/ops/softmax.py",
        "(inverse, -upstream_total * inverse * inverse)",
        "(inverse, upstream_total * inverse * inverse)", ("ops",)),
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
        '    if keras.config.backend() == "torch":  # `ops.map`',
        '    if keras.config.backend() != "torch":  # `ops.map`',
        ("ops", "layers"),
        ("tensorflow",),  # where the size of a batch may be unknown
    ),
    Bug("a covariance of the data without the unit of the noise", "keras_het/covariances/low_rank.py",
        "return layer.multiplier * np.concatenate(", "return np.concatenate(", ("explain",)),
    Bug("a bias of the noise without its unit", "keras_het/base/precision.py",
        "None if bias is None else multiplier * bias", "bias", ("layers",)),
    Bug("noise that starts in another unit", "keras_het/covariances/covariance.py",
        "* self.scale_unit / self.learning_rate_multiplier", "* self.scale_unit", ("layers",)),
    Bug("independent noise that learns slowly while it is small", "keras_het/covariances/covariance.py",
        "self.scale_unit = max(start - self.min_scale, self.min_scale)", "self.scale_unit = 1.0", ("layers",)),
    Bug("factors that are not divided by the root of their number", "keras_het/covariances/low_rank.py",
        "self.learning_rate_multiplier / math.sqrt(self.num_factors)", "self.learning_rate_multiplier", ("layers",)),
    Bug("a penalty that is not rescaled with the kernel", "keras_het/models/rescaling.py",
        "return self.function(x / self.scale)", "return self.function(x)", ("models",)),
    Bug("factors that devices share instead of classes", "keras_het/covariances/parameter_efficient.py",
        '"factor/kernel": 0}', '"factor/kernel": 1}', ("distribution",), ("jax",)),  # which alone splits weights
    Bug("a key of the noise that is read after the clock has moved", "keras_het/layers/heteroscedastic_dense.py",
        "step = step * one ", "step = step ", ("layers",),
        ("torch", "tensorflow")),  # where an assignment changes the tensor
    Bug("a memory of earlier predictions that takes a gradient", "keras_het/models/early_learning.py",
        "ops.stop_gradient(p)", "p", ("models",)),
    Bug("a calibration error divided by the number of examples, not by their weights", "keras_het/metrics.py",
        "self._weight.assign_add(ops.sum(weights))",
        'self._weight.assign_add(ops.sum(ops.cast(weights != 0, "float32")))', ("metrics",)),
    Bug("the link of one sigmoid kept for several classes", "keras_het/models/conversion.py",
        "old = None if units_of(ending.head) == 1 < units else ending.link or None", "old = ending.link or None",
        ("models",)),
    Bug("a variance divided by the temperature and not by its square", "keras_het/reading/head_noise.py",
        "matrix /= self.head.temperature**2", "matrix /= self.head.temperature",
        ("reading", "explain")),
    Bug("flips to the class before instead of the next one", "keras_het/labels/synthetic.py",
        "np.roll(np.eye(num_classes), 1, axis=1)", "np.roll(np.eye(num_classes), 1, axis=0)",
        ("labels/test_matrices.py",)),
    Bug("classifiers that have seen the labels that they predict", "keras_het/labels/training/linear.py",
        "np.flatnonzero((fold_of != fold) & is_kept), regressions", "np.flatnonzero(is_kept), regressions",
        ("labels/test_linear.py",)),
    Bug("votes that are written where the table has none", "keras_het/labels/classes.py",
        "values = table[~blank]", "values = table.ravel()[: (~blank).sum()]", ("labels/test_data.py",)),
    Bug("texts and names that a page runs as HTML", "keras_het/labels/issues/page.py", "autoescape=True",
        "autoescape=False", ("labels/test_page.py",), ("torch",)),  # the page is made there alone
    Bug("a text of an example that a spreadsheet computes", "keras_het/labels/issues/corrections.py",
        "text = FORMULA.sub(r\"\\1'\", f\"\\n{cell}\")[1:]", "text = str(cell)", ("labels/test_page.py",),
        ("torch",)),  # the same
)  # fmt: skip


def marked(source):
    """Yields the names of the tests of a source that have the mark by a decorator."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and "pytest.mark.planted" in map(ast.unparse, node.decorator_list):
            yield node.name


def list_tests():
    paths = [path for folder in TESTS for path in sorted((ROOT / folder).rglob("test_*.py"))]
    names = [f"{path.relative_to(ROOT)}::{name}" for path in paths for name in marked(path.read_text("utf-8"))]
    print(*names, f"{len(names)} tests with a planted bug", sep="\n")


def changed(source, bug):
    """Returns the source of a file with a bug. Raises ValueError unless the original text occurs exactly once."""
    if (count := source.count(bug.old)) != 1:
        raise ValueError(f"`old` must be in {bug.file} once: {bug.old!r}. Received: {count} places")
    return source.replace(bug.old, bug.new)


def first_failure(folder, backend, arguments):
    """Returns the first test that fails, or the file that cannot be collected, or None if all pass."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(folder), "MPLBACKEND": "agg"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a file that changes twice in a second would not be compiled again
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    if failed is None:
        raise RuntimeError(f"pytest must run tests: {' '.join(arguments)}\n{run.stdout}\n{run.stderr}")
    return failed[1]


def caught_by(bug, folder, options):
    """Returns the first test that detects a bug in a copy of the repository, and its backend, or None.

    The copy is right again at the end, and the test must pass in it.
    """
    file = folder / bug.file
    source = file.read_text(encoding="utf-8")
    for backend in bug.backends:
        file.write_text(changed(source, bug), encoding="utf-8")
        try:
            test = first_failure(folder, backend, [*options, *(f"tests/{name}" for name in bug.tests)])
        finally:
            file.write_text(source, encoding="utf-8")
        if test is not None:
            again = [*options, test] if "::" in test else ["--collect-only", test]
            if first_failure(folder, backend, again):
                raise RuntimeError(f"{test} also fails on {backend} without the bug")
            return test, backend
    return None


def plant(bugs, options):
    """Plants bugs in a copy of the repository, one at a time, and returns how many a test detects."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "repository"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for number, bug in enumerate(bugs, 1):
            result = caught_by(bug, copy, options)
            count += result is not None
            print(f"{number}/{len(bugs)} {bug.name}: {' on '.join(result) if result else 'NOT FOUND'}", flush=True)
    print(f"{count} of {len(bugs)} bugs found")
    return count


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["list", "plant"])
    parser.add_argument("--thorough", action="store_true", help="also run tests that are not in the default check")
    options = parser.parse_args(arguments)
    if options.command == "list":
        return list_tests()
    return int(plant(BUGS, ["--thorough"] * options.thorough) < len(BUGS))


if __name__ == "__main__":
    sys.exit(main())
