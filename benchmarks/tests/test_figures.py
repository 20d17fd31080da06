"""Measured figures in the sentences of the pages are those of the result files."""

import pytest

from benchmarks.lib import figures, pages

pytestmark = pytest.mark.once

PLANTED = (
    "3.7 points; 12 points; two points; 8 processor seconds; 1,234 times; 30% of them; 3 of 4; four of five; 8\nMiB; "
    "70 instead of 50; 2.5e-04; NLL 0.5; 3 ± 1; one point; a 3-point gain; 300 milliseconds; 12 percent; 40 s"
)


def texts():
    """Returns the text of each page, by its path in the repository."""
    return {str(x.relative_to(pages.ROOT)): x.read_text() for x in pages.pages()}


def test_every_measured_figure_is_that_of_a_result_file():
    known = figures.figures()
    assert {*known, *figures.SETTINGS} <= set(texts())
    wrong = [f"{page}: {each}" for page, text in texts().items() for each in figures.wrong(page, text, known)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.planted
def test_a_changed_digit_is_found():
    known, counted = figures.figures(), 0
    for page, text in texts().items():
        for fragment, values in known.get(page, {}).items():
            expected = fragment.format(*values)
            digit = next((x for x in expected if x.isdigit()), None)
            changed = text.replace(expected, expected.replace(digit, str(9 - int(digit)))) if digit else text
            if changed != text:  # some have no digits, or the target of a link inside
                assert f"expected {expected!r}" in figures.wrong(page, changed, known)
                counted += 1
    assert counted >= 20


@pytest.mark.planted
@pytest.mark.parametrize("figure", PLANTED.split("; "))
def test_a_figure_without_an_entry_is_found(figure):
    found = figures.wrong("docs/new.md", f"# Title\n\nIt gains a lot: {figure}, with 10 classes.\n", {})
    assert len(found) == 1
    assert found[0].startswith("no entry for ")


def test_settings_names_code_and_tables_need_no_entry():
    code = "```python\nx = 0.5\n```\n\n$$0.5 x$$\n\n| words | 5.5 points |\n\n<!-- run: recipe -->in 5.5 ms<!-- / -->\n"
    text = (
        "Keras 3.15.1 with 10 classes, two heads and 1,000 nodes: `f(0.5)` and $0.5$, [Name](p_0.1.md), arXiv:21.103."
    )
    assert not figures.wrong("docs/new.md", f"{text}\n\n{code}", {})
