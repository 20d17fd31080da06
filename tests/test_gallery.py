"""The gallery shows all that the package draws and prints, by short scripts whose outputs were kept."""

import pytest

import keras_het
from benchmarks.lib import results
from guides.gallery.lib import entries, run
from guides.gallery.lib.contents import CONTENTS
from guides.notebooks.reader import digest

pytestmark = pytest.mark.once

PATHS = sorted(entries.FOLDER.glob("*.py"))
ENTRIES = {path.stem: entries.read(path) for path in PATHS}
MOST_LINES, MOST_BYTES = 21, 60_000

# What prints a text or a table, or has a picture of its own.
SHOWN = {
    "keras_het.analysis.annotators",
    "keras_het.explain.confused_pairs",
    "keras_het.labels.diagnosis.diagnose",
    "keras_het.explain.explain",
    "keras_het.analysis.find_label_issues",
    "keras_het.analysis.find_multi_label_issues",
    "keras_het.explain.find_target_issues",
    "keras_het.explain.joint_labels",
    "keras_het.explain.regression_scores",
    "keras_het.explain.sample_segmentations",
    "keras_het.callbacks.TrainingDynamics",
    "keras_het.check",
    "keras_het.choose",
    "keras_het.clean_labels",
    "keras_het.estimate_cost",
    "keras_het.report",
    "keras_het.tune",
    *(f"keras_het.explain.plots.{name}" for name in keras_het.explain.plots.__all__),
}


@pytest.fixture(params=ENTRIES)
def entry(request):
    return ENTRIES[request.param]


def code_lines(code):
    """The lines of some code that are neither blank nor imports."""
    return [line for line in code.splitlines() if line.strip() and not line.startswith(("import ", "from "))]


def is_kept(entry, run):
    """Whether kept outputs are of the code and the seeds of an entry."""
    return run.tables["code"] == digest(entry.code) and run.seeds == entry.seeds


def test_all_that_is_drawn_or_printed_has_an_entry():
    used = {name for entry in ENTRIES.values() for name in entries.names_used(entry.code)}
    assert SHOWN - used == set()
    assert '"keras_het", "doctor"' in ENTRIES["doctor"].code
    for name in ("choose", "tune"):
        assert "found.plot()" in ENTRIES[name].code
    assert ".predict_interval(" in ENTRIES["predict_interval"].code


def test_the_table_of_contents_has_each_entry_once():
    assert sorted(name for _, names in CONTENTS.values() for name in names) == list(ENTRIES)


def test_an_entry_is_short_and_narrow(entry):
    assert len(code_lines(entry.code)) <= MOST_LINES
    assert max(map(len, entry.code.splitlines())) <= entries.COLUMNS


def test_the_kept_outputs_are_of_the_code_of_the_entry(entry):
    kept, figure = results.read(entries.OUTPUTS / f"{entry.name}.json"), entries.OUTPUTS / f"{entry.name}.png"
    assert is_kept(entry, kept), f"run `{run.COMMAND} {entry.name}`"
    assert kept.tables["printed"] or figure.exists()
    assert not figure.exists() or figure.stat().st_size < MOST_BYTES


@pytest.mark.planted
def test_outputs_of_other_code_are_found():
    entry, kept = ENTRIES["check"], results.read(entries.OUTPUTS / "check.json")
    assert is_kept(entry, kept)
    assert not is_kept(entry._replace(code=entry.code.replace("64", "63")), kept)
    assert not is_kept(entry._replace(seeds=[1]), kept)


def test_no_output_is_left_of_an_entry_that_is_gone():
    assert {path.stem for path in entries.OUTPUTS.iterdir()} == set(ENTRIES)


@pytest.mark.parametrize("name", ["annotators", "check"])
def test_the_kept_text_is_what_an_entry_prints(name, tmp_path):
    """Of two that take no time and compute nothing on a backend."""
    kept = results.read(entries.OUTPUTS / f"{name}.json")
    assert run.execute(ENTRIES[name], tmp_path) == kept.tables["printed"]


def test_what_an_entry_prints_and_draws_is_kept(tmp_path):
    folder, outputs = tmp_path / "run", tmp_path / "outputs"
    folder.mkdir()
    outputs.mkdir()
    code = 'import matplotlib.pyplot as plt\n\nplt.subplots()[0].savefig("any.png")\nprint(1)'
    entry = entries.Entry("one", "One", "It prints 1.", [0], code)
    run.keep(entry, run.execute(entry, folder), folder, "abc1234", outputs)
    kept = results.read(outputs / "one.json")
    assert (kept.tables["printed"], kept.commit, is_kept(entry, kept)) == ("1", "abc1234", True)
    assert (outputs / "one.png").read_bytes().startswith(b"\x89PNG")


CODE = """\
import keras
import keras_het
from keras_het import analysis, explain

head = keras_het.HeteroscedasticDense(10)
explain.plots.pairs(explain.confused_pairs(keras.Model())).figure.savefig("a.png")
"""


def test_the_names_of_the_package_that_code_uses():
    assert entries.names_used(CODE) == [
        "keras_het.HeteroscedasticDense",
        "keras_het.explain.plots.pairs",
        "keras_het.explain.confused_pairs",
    ]
