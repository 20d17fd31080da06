"""Reads the links of a built site."""

import html.parser
import pathlib
import re
import urllib.parse

ROOT = pathlib.Path(__file__).parents[2]
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
    "object": "data",
}
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s]+)""")


class Page(html.parser.HTMLParser):
    """The files that a page loads, its links, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.loaded, self.links, self.places = [], [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = {name: value or "" for name, value in attrs}
        if tag in LOADED and LOADED[tag] in attributes:
            self.loaded.append(attributes[LOADED[tag]])
        self.loaded += IN_STYLES.findall(attributes.get("style", ""))
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        self.places |= {attributes[name] for name in ("id", "name") if name in attributes}

    def handle_data(self, data):
        if self.lasttag == "style":
            self.loaded += IN_STYLES.findall(data)


def is_remote(address):
    parts = urllib.parse.urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "ftp")


def remote(site):
    """Returns the scripts, fonts, styles, images and frames of other hosts: `(file, address)`."""
    loaded = [(path, address) for path in site.rglob("*.html") for address in Page(path).loaded]
    loaded += [(path, address) for path in site.rglob("*.css") for address in IN_STYLES.findall(path.read_text())]
    return [(path.name, address) for path, address in loaded if is_remote(address)]


def broken(site):
    """Returns the links within the site to a missing file or anchor: `(file, address)`."""
    # 404.html is for a server and has absolute links.
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    return [
        (path.name, address)
        for path, page in pages.items()
        for address in page.links
        if not is_remote(address) and not _leads(path, address, pages)
    ]


def _leads(path, address, pages):
    parts = urllib.parse.urlsplit(address)
    target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
    if target in pages:
        return urllib.parse.unquote(parts.fragment) in pages[target].places
    return target.is_file()
