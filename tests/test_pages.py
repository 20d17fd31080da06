"""README and the pages of docs/: their examples run, their links lead somewhere, and their figures are those of the tables they are of."""

import pathlib
import re

import pytest

import keras_het

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


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"], ids=lambda page: page.stem)
def test_no_page_holds_a_placeholder(page):
    assert "@@" not in page.read_text()


@pytest.mark.parametrize("path", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"])
def test_the_files_that_a_page_links_to_are_there(path):
    """Of links to other sites nothing is known here, and those of the pages in docs/ are tested where the site is built."""
    page = ROOT / path
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing, missing


def test_the_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 125


def rows(page, section=""):
    """The rows of the tables of a page, or of its section with this heading, as tuples of cells; without heads and lines below them."""
    text = (ROOT / page).read_text()
    text = text.split(f"## {section}\n")[1].split("\n## ")[0] if section else text
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if line.startswith("|")]
    return {row for row in cells if any(re.search(r"\d\.\d", cell) for cell in row)}


@pytest.mark.parametrize(
    ("page", "section", "source"),
    [
        ("README.md", "Results", "docs/when-it-pays.md"),
        ("docs/rivals.md", "Your noise looks like this: begin with that", "docs/arena-tables.md"),
        ("benchmarks/README.md", "arena.py: which method helps against which wrong labels?", "docs/arena-tables.md"),
    ],
)
def test_figures_are_those_of_the_table_that_they_are_of(page, section, source):
    """`docs/arena-tables.md` is what `benchmarks/arena.py` writes."""
    found = rows(page, section)
    assert len(found) >= 5
    assert not found - rows(source)
