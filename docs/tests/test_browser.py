"""The site in Chromium, opened as files: each page loads without a message, fits a phone, and the search finds it."""

import importlib
import os
import pathlib
import re

import pytest
from chromium import SIZES, context
from site_files import ROOT, Page, is_remote

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
    # 404.html is for a server and has absolute addresses.
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


@pytest.mark.parametrize("name", ["index", "pretrained", "heads", "label-errors", "choose"])
def test_no_code_of_the_first_pages_is_cut_off_on_a_laptop(name, opened, site):
    page = opened("laptop")
    page.goto((site / f"{name}.html").as_uri())
    assert page.locator("article pre code").count() > 1
    assert wide_code(page) == []


@pytest.mark.planted
def test_code_that_is_cut_off_is_caught(browser, tmp_path):
    (tmp_path / "page.html").write_text(f"<article><pre style='overflow: auto'><code>{'planted ' * 99}</code></pre>")
    page = browser.new_page(viewport={"width": 1100, "height": 800})
    page.goto((tmp_path / "page.html").as_uri())
    assert wide_code(page)
    page.close()


def wide_code(page):
    """Returns the beginnings of code blocks that scroll sideways."""
    return page.evaluate(
        "[...document.querySelectorAll('article pre, article pre code')]"
        ".filter((block) => block.scrollWidth > block.clientWidth + 1 && block.clientWidth > 0)"
        ".map((block) => block.textContent.slice(0, 60))"
    )


def found_by(page, words):
    """Returns the addresses that the search finds, the best first."""
    box = page.locator(".md-search__input")
    box.fill(words[:-1])
    box.press_sequentially(words[-1])  # only a key makes it search
    page.wait_for_function(
        """(word) => {
            const links = [...document.querySelectorAll(".md-search-result__link")];
            const text = document.querySelector(".md-search-result__meta")?.textContent ?? "";
            return links.some((link) => link.href.toLowerCase().includes(`h=${word}`)) || text.includes("No matching");
        }""",
        arg=re.split("[ -]", words)[0].lower(),
    )
    return [link.get_attribute("href") for link in page.locator(".md-search-result__link").all()]


WANTED = {
    "install": ("index.html",),
    "cite": ("index.html",),
    "GPU": ("index.html", "backends.html"),
    "fine-tune": ("pretrained.html",),
    "KerasHub": ("pretrained.html",),
    "parity": ("backends.html", "keras_het.parity.html"),
    "instance-dependent": ("choose.html", "glossary.html", "when-it-helps.html"),
    "mislabelled": ("label-errors.html", "glossary.html"),
    "annotators": ("annotators.html",),
    "embeddings": ("label-errors.html", "choose.html"),
    "glossary": ("glossary.html",),
    "temperature": ("when-it-helps.html",),
    "label errors": ("label-errors.html",),
}


@pytest.mark.parametrize("words", WANTED)
def test_the_search_finds_what_a_newcomer_looks_for(words, opened, site):
    page = opened()
    page.goto((site / "index.html").as_uri())
    first = [address.split("?")[0].removeprefix("./") for address in found_by(page, words)[:12]]
    assert any(address.endswith(WANTED[words]) for address in first), first


@pytest.mark.planted
def test_a_word_that_stands_nowhere_is_not_found(opened, site):
    page = opened()
    page.goto((site / "index.html").as_uri())
    assert found_by(page, "temperature") != []
    assert found_by(page, "qqzzplanted") == []


def test_the_search_finds_a_page_without_a_server(opened, site):
    page = opened()
    page.goto((site / "index.html").as_uri())
    assert found_by(page, "HeteroscedasticDense")
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url("**/api/keras_het*.html*")


def test_the_search_finds_every_public_name(opened, site, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "hooks")
    package = importlib.import_module("package")
    names = {
        path.rpartition(".")[2]
        for module in package.public_modules(package.load(ROOT))
        for path in package.public_names(module)
    }
    page = opened()
    page.goto((site / "index.html").as_uri())
    assert len(names) > 50
    assert [name for name in sorted(names) if not any("api/" in href for href in found_by(page, name))] == []


def test_the_home_page_is_light_and_quick(opened, site):
    page = opened()
    page.goto((site / "index.html").as_uri())
    paint = page.wait_for_function("performance.getEntriesByName('first-contentful-paint')[0]?.startTime").json_value()
    loaded = (address for address in Page(site / "index.html").loaded if not is_remote(address))
    files = {site / "index.html", *((site / address).resolve() for address in loaded)}
    weight = sum(path.stat().st_size for path in files if path.is_file())
    print(f"first paint {paint:.0f} ms, {len(files)} files, {weight / 1e3:.0f} kB")
    assert weight < 2e6
    assert paint < 3000


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
    wrong, page = [], browser.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda request: None if request.url.startswith(FILES) else wrong.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    page.close()
    assert {"planted", "http://127.0.0.1:9/planted.png"} <= set(wrong)
