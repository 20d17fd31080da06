"""README and the pages of docs/: examples run, links lead somewhere, figures are those of the tables they are of."""

import hashlib
import pathlib
import re

import pytest

import keras_het
from benchmarks.lib import pages, results

pytestmark = pytest.mark.once

ROOT = pathlib.Path(keras_het.__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(page, block.split("```")[0], id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(page.read_text().split("```python\n")[1:])
]


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_the_examples_of_the_pages_run(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page.name, "exec"), {"__name__": "__main__"})


COLUMNS = 76  # a laptop's column cuts code off at 78


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_the_examples_of_the_pages_fit_a_laptop(page, block):
    wide = [line for line in block.splitlines() if len(line) > COLUMNS]
    assert not wide, wide


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"], ids=lambda page: page.stem
)
def test_no_page_holds_a_placeholder(page):
    assert "@@" not in page.read_text()


@pytest.mark.parametrize("path", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"])
def test_the_files_that_a_page_links_to_are_there(path):
    """Links to other sites are not tested here, and those of the pages in docs/ where the site is built."""
    page = ROOT / path
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing, missing


def test_the_readme_says_first_how_to_get_the_package():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert "Not on a package index yet: [install](#install)" in "\n".join(lines[:8])


def test_the_site_has_sixteen_entries_for_users_and_all_else_under_research():
    nav = (ROOT / "mkdocs.yml").read_text().split("nav:\n")[1].split("validation:")[0]
    entries = re.findall(r"^  - (.+?):", nav, re.MULTILINE)
    assert entries[-1] == "Research"
    assert len(entries) <= 17
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


WORDS_OF_VOTES = ("crowdsourcing", "weak supervision", "labelling functions", "soft labels", "abstain", "long table")


@pytest.mark.parametrize("word", ["instance-dependent", "class-dependent", "symmetric", "embeddings", "annotators"])
def test_the_words_of_the_field_stand_in_a_heading_and_on_the_page_of_advice(word):
    headings = [line.lower() for page in PAGES for line in page.read_text().splitlines() if line.startswith("#")]
    assert any(word in line for line in headings)
    assert word in (ROOT / "docs" / "choose.md").read_text().lower()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("gold-set", ("gold set", "prediction-powered", "under any noise", "when to stop", "verified")),
        ("llm-labels", ("llm", "judge", "verdicts", "label studio", "embeddings")),
    ],
)
def test_the_words_of_who_judges_stand_on_the_pages_about_it(page, words):
    text = (ROOT / "docs" / f"{page}.md").read_text().lower()
    assert [word for word in words if word not in text] == []


def test_the_words_of_several_annotators_stand_on_their_page():
    page = (ROOT / "docs" / "annotators.md").read_text().lower()
    assert [word for word in WORDS_OF_VOTES if word not in page] == []


# Code, formulas, and what has a digit in a table of words: names of others, and limits that tests hold.
WORDS = re.compile(
    r"`[^`]*`|\$[^$]*\$|edward2|Keras [23]|ImageNet-21k|jax2onnx|tf2onnx|2 \(D K \+ K\) \+ K R|clipped at 1e-7"
    r"|below 1e-4"
)
ROW = re.compile(r"\s*(\||<t[dr]>)")


def test_the_pictures_of_the_home_page_are_of_its_code():
    code = (ROOT / "docs" / "index.md").read_text().split("```python\n")[1].split("```")[0]
    kept = (ROOT / "docs" / "figures" / "report.sha256").read_text().strip()
    assert kept == hashlib.sha256(code.encode()).hexdigest(), "run `python -m nox -s gallery -- --keep`"


class TestTables:
    """Tables with figures are rendered from the result files of `benchmarks/results`."""

    def test_the_pages_show_what_the_result_files_have(self):
        assert sum("<!-- table: " in page.read_text() for page in pages.pages()) >= 8
        found = [page.name for page in pages.differing()]
        assert not found, f"{found}: run `python -m benchmarks.lib.pages`"

    def test_every_result_file_has_a_page_and_every_page_a_result_file(self):
        assert {path.stem for path in results.FOLDER.glob("*.md")} == {p.stem for p in results.FOLDER.glob("*.json")}

    @pytest.mark.planted
    def test_a_page_of_results_that_was_changed_is_found(self, tmp_path, monkeypatch):
        for name in ("ensembles.json", "ensembles.md"):
            (tmp_path / name).write_text((results.FOLDER / name).read_text())
        monkeypatch.setattr(results, "FOLDER", tmp_path)
        monkeypatch.setattr(pages, "pages", list)
        assert not pages.differing()
        page = tmp_path / "ensembles.md"
        page.write_text(page.read_text().replace("+-", "+- 0", 1))
        assert list(pages.differing()) == [page]
        page.unlink()
        assert list(pages.differing()) == [page]

    def test_no_table_has_a_figure_that_was_typed(self):
        for page in [*pages.pages(), ROOT / "CHANGELOG.md", *sorted((ROOT / "guides").glob("*.py"))]:
            typed = figures_of_tables(pages.without_results(page.read_text()))
            assert not typed, f"{page.name}: {typed}"

    @pytest.mark.planted
    def test_a_figure_that_is_typed_is_found(self):
        target = "recipe, mean rank correlation over the tasks"
        page = pages.rendered(f"<!-- table: {target} -->\n<!-- / -->\n")
        assert "| noisy NLL " in page
        changed = page.replace("0.63", "0.64", 1)
        assert changed != page
        assert pages.rendered(changed) == page  # so a page that has it differs from what is rendered
        assert not figures_of_tables(pages.without_results(page))
        for row in ("| words | 0.64 |", "| words | 93 |", "  | words | ,93 |", "| `f` | 7 of 10 |", "<td>3 GiB</td>"):
            assert figures_of_tables(pages.without_results(f"{page}\n{row}\n")) == [row]


def figures_of_tables(text):
    """The rows of tables that have a digit beside code, formulas and names."""
    return [line for line in text.splitlines() if ROW.match(line) and re.search(r"\d", WORDS.sub("", line))]
