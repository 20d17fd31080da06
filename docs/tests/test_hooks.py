"""The hooks of the site: pages of guides, the table of equations, the overview of the API, docstrings, links."""

import importlib
import pathlib
import re
import types

import pytest
from site_files import ROOT


@pytest.fixture
def hook(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "hooks")
    return importlib.import_module


GUIDE = """\
\"""
Title: A
Description: B: c.
\"""

\"""
## D
\"""

import keras


def f():
    \"""Of f.\"""


\"""Last.\"""

print(1)
"""


def test_a_guide_is_text_and_code_and_what_the_code_printed_and_drew(hook):
    run = hook("guide").results.read(ROOT / "guides" / "outputs" / "annotators.json")
    run = run._replace(tables={"1": "1"})
    figures = {0: pathlib.Path("a-0.png")}
    page = hook("guide").guide_page(hook("guide").Guide(GUIDE, run, figures))
    code = 'import keras\n\n\ndef f():\n    """Of f."""'
    parts = [
        "# A",
        "B: c.",
        "## D",
        f"```python\n{code}\n```",
        "![Picture that this code draws](a-0.png)",
        "Last.",
        "```python\nprint(1)\n```",
        "```text\n1\n```",
    ]
    assert page.startswith("\n\n".join(parts))
    assert "<small>Run with `" in page


@pytest.fixture
def pages(hook):
    return hook("guide").guide_pages(ROOT / "guides")


def test_the_page_of_a_guide_has_all_of_it(pages):
    for path in (ROOT / "guides").glob("*.py"):
        page, text = pages[f"guides/{path.stem}.md"], path.read_text().split('"""\n\n', 1)[1]
        lost = [line for line in text.splitlines() if line.strip() not in ("", '"""') and line.strip() not in page]
        assert lost == []
        assert "```text\n" in page  # it was run, and printed


def test_the_index_has_a_card_with_a_picture_and_the_time_for_every_guide(pages):
    assert next(iter(pages)) == "guides/index.md"
    index = pages["guides/index.md"]
    for path in (ROOT / "guides").glob("*.py"):
        pattern = rf"\[!\[.+\]\(({path.stem}-\d+\.png)\)\]\({path.stem}\.md\)\n\n +\*\*\[.+\]\({path.stem}\.md\)\*\*\n"
        match = re.search(pattern + r"\n +[A-Z].+\.\n\n +\d+ (seconds|minutes), \d+ cores\n", index)
        assert match, path.stem
        assert f"guides/{match[1]}" in pages


@pytest.mark.parametrize(("text", "expected"), [
    ("A.\n\nWarns: x\n    and y.", "A.\n\n\n**Warns:** x and y.\n"),
    ("Attributes:\n    a, b: numbers,\n        or none.",
     "Attributes:\n    a: numbers,\n    b: numbers,\n        or none."),
    ("Args:\n    a: a, b: c.", "Args:\n    a: a, b: c."),
    ("Input shape: `(B, D)`.\nOutput shape: `(B,)`.", "\n**Input shape:** `(B, D)`.\n\n\n**Output shape:** `(B,)`.\n"),
    ("Example:\n    >>> 1\n    1", "\nExamples:\n    >>> 1\n    1"),
])  # fmt: skip
def test_sections_are_what_griffe_reads(hook, text, expected):
    assert hook("docstrings").sections(text) == expected


def test_equations_come_from_the_docstrings(hook, tmp_path):
    source = '''"""A package."""
__all__ = ["f"]


def f():
    """A function.

        x = y                    (Doe et al. 2021, Eq. 12)

    Source: Doe, Roe and Poe, ICML 2021, Eqs. 3 and 4, where
        a | b is 1; the code of its authors.
    """


def _g():
    """A private one (Doe 2021, Eq. 2)."""
'''
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").write_text(source)
    assert hook("equations").equations_table(hook("package").load(tmp_path, "toy")).splitlines() == [
        "| Paper | Equation | Functions |",
        "|---|---|---|",
        "| Doe 2021 | Eq. 2 | `_g` |",
        "| Doe 2021 | Eq. 12 | [`toy.f`][toy.f] |",
        "| Doe 2021 | Eqs. 3 and 4 | [`toy.f`][toy.f] |",
    ]


def test_the_overview_has_a_line_for_every_public_name(hook):
    package = hook("package").load(ROOT)
    names = [
        path for module in hook("package").public_modules(package) for path in hook("package").public_names(module)
    ]
    overview = hook("api").overview(package)
    assert re.findall(r"^- \[`\w+`\]\[([\w.]+)\]: \S", overview, re.MULTILINE) == names
    assert len(names) > 50


@pytest.mark.parametrize(("link", "address"), [
    ("heads.md", "heads.md"),
    ("../benchmarks/results/speed.md#cpu", "repository/benchmarks/results/speed.md.txt#cpu"),
    ("../guides", "guides/index.md"),
    ("../guides/label_flips.py", "guides/label_flips.md"),
    ("../keras_het", "api/index.md"),
    ("../keras_het/labels/__init__.py", "api/keras_het.labels.md"),
])  # fmt: skip
def test_a_link_to_a_file_of_the_repository_leads_to_its_page_or_copy(hook, link, address):
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="index.md"))
    assert hook("pages").on_page_markdown(f"[a]({link})", page, None, None) == f"[a]({address})"
