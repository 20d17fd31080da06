"""README and the pages of docs: examples run, links work, and pictures match their code."""

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


@pytest.mark.parametrize("folder", [".", "docs", "benchmarks"])
def test_the_files_that_pages_link_to_are_there(folder):
    """The build of the site follows the links as well, but a reader of the repository has no generated pages."""
    pages = sorted((ROOT / folder).glob("*.md"))
    assert {page.name: broken_links(page) for page in pages if broken_links(page)} == {}


def broken_links(page):
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    return [link for link in links if "://" not in link and not (page.parent / link).exists()]


SENTENCE = "Heteroscedastic output layers and label-noise tools for Keras 3"
DESCRIPTIONS = ["README.md", "pyproject.toml", "mkdocs.yml", "docs/index.md", "CITATION.cff"]


@pytest.mark.parametrize("path", DESCRIPTIONS)
def test_one_sentence_describes_the_package(path):
    assert SENTENCE in (ROOT / path).read_text()


def test_the_menu_has_at_most_fifteen_pages():
    nav = (ROOT / "mkdocs.yml").read_text().split("nav:\n")[1].split("validation:")[0]
    assert re.findall(r"^  - (.+):", nav, re.MULTILINE) == ["Start", "Heads", "Labels", "Reference", "Research"]
    assert nav.count(".md\n") <= 15
    assert len((ROOT / "README.md").read_text().splitlines()) <= 95


def test_the_readme_names_what_the_package_is_for():
    words = ["KerasHub", "KerasCV", "keras.applications", "fine-tune", "parity", "accelerator", "low-rank"]
    words += ["parameter-efficient", "keras.ops", "Collier", "Sukhbaatar", "NoiseTransition"]
    text = (ROOT / "README.md").read_text().lower()
    assert [word for word in words if word.lower() not in text] == []


@pytest.mark.parametrize(("page", "words"), [
    ("choose", ("instance-dependent", "class-dependent", "symmetric", "embeddings", "annotators")),
    ("judge", ("prediction-powered", "verified", "llm")),
    ("annotators", ("crowdsourcing", "weak supervision", "labelling functions", "soft labels", "abstain", "llm")),
])  # fmt: skip
def test_the_words_of_a_subject_stand_on_its_page(page, words):
    text = (ROOT / "docs" / f"{page}.md").read_text().lower()
    assert [word for word in words if word not in text] == []


def test_the_pictures_of_the_report_are_of_the_code_of_their_page():
    code = (ROOT / "docs" / "label-errors.md").read_text().split("```python\n")[1].split("```")[0]
    kept = (ROOT / "docs" / "figures" / "report.sha256").read_text().strip()
    assert kept == hashlib.sha256(code.encode()).hexdigest(), "run `python -m nox -s guides -- --notebooks --keep`"
