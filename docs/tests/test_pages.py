"""README and the pages of docs/: examples run, links lead somewhere, and pictures show what their code makes."""

import hashlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(page, block.split("```")[0], id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(page.read_text().split("```python\n")[1:])
]


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_the_examples_of_the_pages_run_and_fit_a_laptop(page, block, tmp_path, monkeypatch):
    assert [line for line in block.splitlines() if len(line) > 76] == []  # a laptop's column cuts code off at 78
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page.name, "exec"), {"__name__": "__main__"})


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
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_readme_says_first_how_to_get_the_package():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert "Not on a package index yet: [install](#install)" in "\n".join(lines[:8])


def test_the_site_has_sixteen_entries_for_users_and_all_else_under_research():
    nav = (ROOT / "mkdocs.yml").read_text().split("nav:\n")[1].split("validation:")[0]
    entries = re.findall(r"^  - (.+?):", nav, re.MULTILINE)
    assert entries[-1] == "Research"
    assert len(entries) <= 17
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


@pytest.mark.parametrize("word", ["instance-dependent", "class-dependent", "symmetric", "embeddings", "annotators"])
def test_the_words_of_the_field_stand_in_a_heading_and_on_the_page_of_advice(word):
    headings = [line.lower() for page in PAGES for line in page.read_text().splitlines() if line.startswith("#")]
    assert any(word in line for line in headings)
    assert word in (ROOT / "docs" / "choose.md").read_text().lower()


@pytest.mark.parametrize(("page", "words"), [
    ("gold-set", ("gold set", "prediction-powered", "under any noise", "when to stop", "verified")),
    ("annotators", (
        "crowdsourcing", "weak supervision", "labelling functions", "soft labels", "abstain", "long table",
    )),
    ("llm-labels", ("llm", "judge", "verdicts", "label studio", "embeddings")),
])  # fmt: skip
def test_the_words_of_a_subject_stand_on_its_page(page, words):
    text = (ROOT / "docs" / f"{page}.md").read_text().lower()
    assert [word for word in words if word not in text] == []


def test_the_pictures_of_the_home_page_are_of_its_code():
    code = (ROOT / "docs" / "index.md").read_text().split("```python\n")[1].split("```")[0]
    kept = (ROOT / "docs" / "figures" / "report.sha256").read_text().strip()
    assert kept == hashlib.sha256(code.encode()).hexdigest(), "run `python -m nox -s guides -- --notebooks --keep`"
