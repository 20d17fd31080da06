"""The site in a real Chromium, opened as files: every page loads in silence, fits a phone, and the search finds it."""

import os
import pathlib

import pytest

from tests.chromium import SIZES, context

FILES = ("file:", "data:", "blob:", "about:")


@pytest.fixture
def opened(browser):
    """Makes a page of a size and colour scheme, and fails if it says anything or asks another host."""
    contexts, wrong = [], []

    def make(size="desktop", scheme="light"):
        contexts.append(context(browser, size, scheme))
        page = contexts[-1].new_page()
        page.on("request", lambda request: None if request.url.startswith(FILES) else wrong.append(request.url))
        page.on("requestfailed", lambda request: wrong.append(f"{request.url}: {request.failure}"))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        return page

    yield make
    for made in contexts:
        made.close()
    assert wrong == []


def addresses(site):
    # 404.html is a server's, with absolute addresses.
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def brightness(page, name):
    return page.evaluate(
        f"getComputedStyle(document.body).{name}.match(/[0-9.]+/g).slice(0, 3).reduce((sum, c) => sum + c / 3, 0)"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_page_loads_in_silence_and_fits(size, scheme, opened, site, tmp_path):
    page, folder = opened(size, scheme), pathlib.Path(os.environ.get("SCREENSHOTS") or tmp_path)
    for address in addresses(site):
        page.goto(address.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], address.name
        assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)"), (
            address.name
        )
        assert (
            page.evaluate("parseFloat(getComputedStyle(document.querySelector('article p, article li')).fontSize)")
            >= 14
        ), address.name
        page.screenshot(path=folder / f"{size}-{scheme}-{address.relative_to(site).as_posix().replace('/', '-')}.png")
    text, ground = brightness(page, "color"), brightness(page, "backgroundColor")
    assert (text < 100 and ground > 200) if scheme == "light" else (text > 150 and ground < 60)


def test_the_search_finds_without_a_server(opened, site):
    page = opened()
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").fill("HeteroscedasticDense")
    first = page.locator(".md-search-result__link").first
    first.wait_for()
    first.click()
    page.wait_for_url("**/api/keras_het.layers.html*")


def test_a_formula_is_drawn(opened, site):
    page = opened()
    page.goto((site / "theory.html").as_uri())
    box = page.locator("div.formula mfrac").first.bounding_box()
    assert box["width"] > 10
    assert box["height"] > 20


@pytest.mark.planted
def test_a_page_that_is_loud_or_asks_another_host_is_caught(browser, tmp_path):
    (tmp_path / "page.html").write_text(
        '<script>console.log("planted")</script><img src="http://127.0.0.1:9/planted.png">'
    )
    wrong = []
    page = browser.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda request: None if request.url.startswith(FILES) else wrong.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    page.close()
    assert {"planted", "http://127.0.0.1:9/planted.png"} <= set(wrong)
