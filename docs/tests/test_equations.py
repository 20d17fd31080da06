"""A docstring cites every numbered equation of the two papers, unless there is a reason."""

import re

import pytest
from site_files import ROOT

WITHOUT = {
    "Collier 2021": {
        1: "the generative process, whose argmax has no gradient; Eq. 3 stands for it",
        2: "why a softmax is the case of Gumbel noise",
        **dict.fromkeys((6, 7, 8, 9, 10, 11, 12), "a step towards Eq. 13"),
    },
    "Sukhbaatar 2014": {6: "a bound, for a proof", 7: "what follows from it"},
}
LAST = {"Collier 2021": 13, "Sukhbaatar 2014": 8}


@pytest.fixture
def citations(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "hooks")
    from equations import citations
    from package import load

    return list(citations(load(ROOT)))


def cited(citations, work):
    """Returns the numbers of the equations of a paper that docstrings cite."""
    places = [c.place for c in citations if c.work == work and c.place.startswith("Eq")]
    return {int(number) for place in places for number in re.findall(r"\d+", place)}


@pytest.mark.parametrize("work", LAST)
def test_an_equation_has_a_function_or_a_reason_to_have_none(citations, work):
    assert set(range(1, LAST[work] + 1)) - cited(citations, work) == set(WITHOUT[work])


@pytest.mark.parametrize("work", LAST)
def test_no_docstring_cites_an_equation_that_its_paper_has_not(citations, work):
    assert max(cited(citations, work)) <= LAST[work]


@pytest.mark.planted
def test_an_equation_that_nothing_cites_is_found(citations):
    assert 13 in cited(citations, "Collier 2021")
    assert 13 not in cited([c for c in citations if "13" not in c.place], "Collier 2021")
