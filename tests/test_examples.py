"""The examples of the pages that a newcomer reads run. `docs/tests` has the other pages."""

import pathlib

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
PAGES = ("README.md", "docs/index.md", "docs/quickstart.md", "docs/pretrained.md")
EXAMPLES = [
    pytest.param(page, block.split("```")[0], id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate((ROOT / page).read_text().split("```python\n")[1:])
]


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_an_example_runs(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page, "exec"), {"__name__": "__main__"})
