"""The one advice: every kind of noise has one row, what it names exists, and README and pages say the same."""

import pathlib
import re

import pytest

import keras_het
from keras_het.analysis import advice

pytestmark = pytest.mark.once

ROOT = pathlib.Path(keras_het.__file__).parent.parent
KINDS = ("none", "uniform", "pattern", "pairs", "by example", "outliers", "unknown")
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "keras_het").rglob("*.py"))]
BEGIN = re.compile(r"[Bb]egin with (?:label smoothing: )?`?((?:keras_het|losses|layers|labels)\.[\w.]+)")
NAMES = re.compile(r"`([\w.]+)")


def named(method):
    """The public names in a text, from the package on; not those of arguments and attributes."""
    return [name.removeprefix("keras_het.") for name in NAMES.findall(method) if "." in name]


def test_every_kind_of_noise_has_one_row():
    assert sorted(kind for row in advice.ROWS for kind in row.kinds) == sorted(KINDS)


def test_whatever_it_names_is_public():
    for method in [*(row.method for row in advice.ROWS), advice.ANNOTATORS]:
        assert named(method)
        for name in named(method):
            found = keras_het
            for part in name.split("."):
                found = getattr(found, part)


def test_the_readme_has_its_rows_and_a_page_has_code_for_each():
    readme, page = ((ROOT / path).read_text() for path in ("README.md", "docs/choose.md"))
    _, _, *lines = readme.split("<!-- table: views.begin_with -->\n")[1].split("\n<!-- / -->")[0].splitlines()
    assert [line.split(" | ")[0].removeprefix("| ").rstrip() for line in lines] == [row.labels for row in advice.ROWS]
    assert advice.ANNOTATORS in readme
    for name in {name for row in advice.ROWS for name in named(row.method)}:
        assert name.split(".")[-1] in page, name


def test_no_text_begins_with_something_else():
    allowed = {name for kind in KINDS for name in named(advice.advice_of(kind).method)}
    for path in TEXTS:
        for name in BEGIN.findall(path.read_text()):
            assert name.removeprefix("keras_het.").rstrip(".") in allowed, f"{path.name}: {name}"


@pytest.mark.planted
def test_a_text_that_begins_with_something_else_is_found():
    for text in ("Begin with losses.SymmetricCrossentropy.", "begin with `keras_het.layers.NoiseTransition`"):
        assert BEGIN.findall(text)
