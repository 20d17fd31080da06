"""Tables with figures on the pages of docs/ are rendered from the result files of `benchmarks/results`."""

import pathlib
import re

import pytest

from benchmarks.lib import pages, results
from benchmarks.lib.views import cost

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
# Code, formulas, and what has a digit in a table of words: names of others, and limits that tests hold.
WORDS = re.compile(
    r"`[^`]*`|\$[^$]*\$|edward2|Keras [23]|ImageNet-21k|jax2onnx|tf2onnx|2 \(D K \+ K\) \+ K R|clipped at 1e-7"
    r"|below 1e-4"
)
ROW = re.compile(r"\s*(\||<t[dr]>)")


def test_the_pages_show_what_the_result_files_have():
    assert sum("<!-- table: " in page.read_text() for page in pages.pages()) >= 8
    names = [page.name for page in pages.differing()]
    assert not names, f"{names}: run `python -m benchmarks.lib.pages`"


@pytest.mark.parametrize(("name", "processor"), cost.PROCESSORS.items())
def test_the_processors_beside_edward2_are_those_of_the_runs(name, processor):
    machine = results.read(results.FOLDER / f"{name}.json").machine
    assert all(word in machine for word in processor.split())


def test_every_result_file_has_a_page_and_every_page_a_result_file():
    assert {path.stem for path in results.FOLDER.glob("*.md")} == {p.stem for p in results.FOLDER.glob("*.json")}


@pytest.mark.planted
def test_a_page_of_results_that_was_changed_is_found(tmp_path, monkeypatch):
    for name in ("regression.json", "regression.md"):
        (tmp_path / name).write_text((results.FOLDER / name).read_text())
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(pages, "pages", list)
    assert not pages.differing()
    page = tmp_path / "regression.md"
    page.write_text(page.read_text().replace("±", "± 0", 1))
    assert list(pages.differing()) == [page]
    page.unlink()
    assert list(pages.differing()) == [page]


def test_no_table_has_a_figure_that_was_typed():
    for page in [*pages.pages(), ROOT / "CHANGELOG.md", *sorted((ROOT / "guides").glob("*.py"))]:
        typed = figures_of_tables(pages.without_results(page.read_text()))
        assert not typed, f"{page.name}: {typed}"


@pytest.mark.planted
def test_a_figure_that_is_typed_is_found():
    target = "cleaning, 12 epochs, other seeds"
    page = pages.rendered(f"<!-- table: {target} -->\n<!-- / -->\n")
    assert "| symmetric " in page
    changed = page.replace("0.930", "0.931", 1)
    assert changed != page
    assert pages.rendered(changed) == page  # so a page that has it differs from what is rendered
    assert not figures_of_tables(pages.without_results(page))
    for row in ("| words | 0.64 |", "| words | 93 |", "  | words | ,93 |", "| `f` | 7 of 10 |", "<td>3 GiB</td>"):
        assert figures_of_tables(pages.without_results(f"{page}\n{row}\n")) == [row]


def figures_of_tables(text):
    """Returns the rows of tables that have a digit outside code, formulas and names."""
    return [line for line in text.splitlines() if ROW.match(line) and re.search(r"\d", WORDS.sub("", line))]
