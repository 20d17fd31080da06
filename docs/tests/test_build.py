"""The site has every public name and loads nothing from other hosts. Its build fails if something is missing."""

import importlib
import shutil
import subprocess
import sys

import pytest
from site_files import ROOT, Page, broken, remote

PAPERS = [path.name for path in ROOT.glob("*.md")]
SOURCES = ["mkdocs.yml", "docs", "keras_het", "guides", "benchmarks", "tests", *PAPERS]


@pytest.fixture
def copied(tmp_path):
    """Copies the sources of the site to another folder."""
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    return tmp_path


def build(folder):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"], cwd=folder, capture_output=True, text=True, check=False
    )


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.planted
def test_an_undocumented_public_name_fails(copied):
    module = copied / "keras_het" / "explain" / "__init__.py"
    change(module, "__all__ = [", 'def planted(): ...\n\n\n__all__ = [\n    "planted",')
    result = build(copied)
    assert result.returncode != 0
    assert "Public names without a docstring: keras_het.explain.planted" in result.stderr


@pytest.mark.planted
def test_whatever_leads_nowhere_fails(copied):
    layer = copied / "keras_het/layers/noise_transition.py"
    change(layer, '    """Label-flip layer', '    """See `keras_het.layers.Planted`.\n\n    Label-flip layer')
    planted = ["[a](planted.md)", "[b](theory.md#planted)", "`keras_het.planted`", "[c][keras_het.planted_too]"]
    index = copied / "docs" / "index.md"
    index.write_text("\n\n".join([index.read_text(), *planted]))
    result = build(copied)
    assert result.returncode != 0
    for words in (
        "'keras_het.layers.Planted'",
        "'planted.md'",
        "#planted",
        "'keras_het.planted'",
        "'keras_het.planted_too'",
    ):
        assert [line for line in result.stderr.splitlines() if "WARNING" in line and words in line], words


@pytest.mark.planted
def test_a_link_to_a_file_that_the_repository_lacks_fails(copied):
    index = copied / "docs" / "index.md"
    index.write_text(index.read_text() + "\n\n[a](../benchmarks/results/planted.md)\n")
    result = build(copied)
    assert result.returncode != 0
    assert "Pages link to files that the repository lacks: benchmarks/results/planted.md" in result.stderr


@pytest.mark.planted
def test_a_formula_that_is_not_understood_fails(copied):
    theory = copied / "docs" / "theory.md"
    theory.write_text("$\\planted{x}$\n\n" + theory.read_text())
    result = build(copied)
    assert result.returncode != 0
    assert "Unknown command in a formula: \\planted{x}" in result.stderr


def test_nothing_is_loaded_from_another_host(site):
    assert 30 < len(list(site.rglob("*.html"))) < 60
    assert remote(site) == []


@pytest.mark.planted
@pytest.mark.parametrize(("name", "text"), [
    ("page.html", '<script src="https://example.com/a.js"></script>'),
    ("page.html", '<link rel="stylesheet" href="//example.com/a.css">'),
    ("page.html", '<img src="http://example.com/a.png">'),
    ("page.html", "<style>@import 'https://example.com/a.css';</style>"),
    ("page.html", '<p style="background: url(https://example.com/a.png)">'),
    ("page.css", "@font-face { src: url('https://example.com/a.woff2') }"),
])  # fmt: skip
def test_a_planted_remote_file_is_found(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    assert [file for file, _ in remote(tmp_path)] == [name]


def test_every_link_of_the_site_leads_somewhere(site):
    assert broken(site) == []


@pytest.mark.planted
def test_a_planted_broken_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html">1</a><a href="a.html#x">2</a><a href="#y">3</a><a href="a.html#z" id="z">4</a>'
    )
    assert [address for _, address in broken(tmp_path)] == ["b.html", "a.html#x", "#y"]


def test_every_public_name_has_its_place(site, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "hooks")
    package = importlib.import_module("package")
    modules = list(package.public_modules(package.load(ROOT)))
    names = {path for module in modules for path in [module.path, *package.public_names(module)]}
    assert len(names) > 50
    assert names <= set().union(*(Page(path).places for path in (site / "api").glob("*.html")))


def test_formulas_are_mathml(site):
    text = (site / "theory.html").read_text()
    assert text.count("<math") > 50
    assert "arithmatex" not in text
