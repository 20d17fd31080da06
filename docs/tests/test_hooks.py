"""What the site is made with: guides as text and code, equations out of docstrings, docstrings as griffe reads them."""

import importlib
import re
import shutil

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
    page = hook("guide").guide_page(GUIDE, {"1": "1"}, {"0": "a-0.png"}, "Run by a test.")
    code = 'import keras\n\n\ndef f():\n    """Of f."""'
    drawn = "![What this code draws](a-0.png)"
    parts = [
        "# A",
        "B: c.",
        "Run by a test.",
        "## D",
        f"```python\n{code}\n```",
        drawn,
        "Last.",
        "```python\nprint(1)\n```",
    ]
    assert page == "\n\n".join([*parts, "```text\n1\n```"]) + "\n"


@pytest.fixture
def pages(hook):
    return hook("guide").guide_pages(ROOT / "guides")


def test_no_line_of_a_guide_is_lost(pages):
    for path in (ROOT / "guides").glob("*.py"):
        page, text = pages[f"guides/{path.stem}.md"], path.read_text().split('"""\n\n', 1)[1]
        lost = [line for line in text.splitlines() if line.strip() not in ("", '"""') and line.strip() not in page]
        assert lost == []
        assert "```text\n" in page  # it was run, and printed


def test_the_index_has_a_card_with_a_picture_and_the_time_for_every_guide(pages):
    assert next(iter(pages)) == "guides/index.md"
    index = pages["guides/index.md"]
    for path in (ROOT / "guides").glob("*.py"):
        pattern = rf"\[!\[\]\(({path.stem}-\d+\.png)\)\]\({path.stem}\.md\)\n\n +\*\*\[.+\]\({path.stem}\.md\)\*\*\n"
        found = re.search(pattern + r"\n +[A-Z].+\.\n\n +\d+ (seconds|minutes), \d+ cores\n", index)
        assert found, path.stem
        assert f"guides/{found[1]}" in pages


@pytest.mark.planted
def test_a_guide_without_a_place_in_the_index_is_refused(hook, tmp_path):
    shutil.copytree(ROOT / "guides", tmp_path / "guides")
    (tmp_path / "guides" / "planted.py").write_text(GUIDE)
    with pytest.raises(Exception, match="of no group in docs"):
        hook("guide").guide_pages(tmp_path / "guides")


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


def test_equations_are_those_of_the_docstrings(hook, tmp_path):
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
    page = hook("equations").equations_page(hook("package").load(tmp_path, "toy"), "# Equations")
    assert [line for line in page.splitlines() if line.startswith(("#", "| "))] == [
        "# Equations",
        "## Doe 2021",
        "| Where | Function | As its docstring says |",
        "| Eq. 2 | `_g` | Doe 2021, Eq. 2 |",
        "| Eq. 12 | [`toy.f`][toy.f] | Doe et al. 2021, Eq. 12 |",
        "| Eqs. 3 and 4 | [`toy.f`][toy.f] | Doe, Roe and Poe, ICML 2021, Eqs. 3 and 4, where a \\| b is 1 |",
        "## Other sources",
        "| Where | Function | As its docstring says |",
        "|  | [`toy.f`][toy.f] | the code of its authors. |",
    ]


def test_the_overview_has_a_line_for_every_public_name(hook):
    package = hook("package").load(ROOT)
    names, found = hook("package").public_names, hook("package").find
    modules = list(hook("package").public_modules(package))
    objects = {found(package, source).path for module in modules for source in names(module).values()}
    linked = re.findall(r"^- \[`[\w.]+`\]\[([\w.]+)\]: \S", hook("api").overview(package), re.MULTILINE)
    sources = {path: source for module in modules for path, source in names(module).items()}
    assert sorted(found(package, sources[path]).path for path in linked) == sorted(objects)


def test_users_find_all_that_stands_at_the_top(hook):
    package = hook("package").load(ROOT)
    wanted = {f"keras_het.{name}" for names in hook("api").FOR_USERS.values() for name in names}
    assert set(hook("package").public_names(package)) <= wanted
    assert 12 <= len(wanted) <= 20
