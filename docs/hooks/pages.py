"""Adds to the pages of docs: the guides, the API, the table of equations, linked files, formulas and links."""

import functools
import pathlib
import re

from api import api_pages
from content import with_links, with_mathml
from equations import equations_table
from guide import guide_pages
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from package import load, undocumented

# A link out of docs, to a guide or module with a page, or to a file, which is copied as text that a browser shows.
REPOSITORY_LINK = re.compile(r"(?<=\]\()\.\./([\w./-]+)")


def on_config(config):
    """Adds the generated pages to the navigation, below the entries that name their folder."""
    addresses = [address for address in generated_pages(config) if address.endswith(".md")]

    def fill(entry):
        ((title, content),) = entry.items()
        if isinstance(content, list):
            return {title: [fill(inner) for inner in content]}
        return {title: [page for page in addresses if page.startswith(content)]} if content.endswith("/") else entry

    config.nav = [fill(entry) for entry in config.nav]
    return config


def on_files(files, config):
    """Adds the generated pages and the files of the repository that pages link to."""
    linked = {path for page in files.documentation_pages() for path in REPOSITORY_LINK.findall(page.content_string)}
    generated = generated_pages(config)
    copied = {path: f"repository/{path}.txt" for path in linked if repository_address(path) not in generated}
    absent = [path for path, copy in copied.items() if repository_address(path) != copy]  # guides and modules
    if missing := sorted({*absent, *(path for path in copied if not (_root(config) / path).is_file())}):
        raise PluginError(f"Pages link to files that the repository lacks: {', '.join(missing)}")
    copies = {copy: (_root(config) / path).read_text(encoding="utf-8") for path, copy in copied.items()}
    for address, content in (generated | copies).items():
        files.append(File.generated(config, address, content=content))
    return files


def repository_address(path):
    """Returns the address on the site of a file of the repository: its page, or the copy."""
    if path in ("guides", "keras_het"):
        return "guides/index.md" if path == "guides" else "api/index.md"
    if guide := re.fullmatch(r"guides/\w+\.py", path):
        return guide[0].replace(".py", ".md")
    if module := re.fullmatch(r"(keras_het[\w/]*)/__init__\.py", path):
        return f"api/{module[1].replace('/', '.')}.md"
    return f"repository/{path}.txt"


def generated_pages(config):
    """Returns the guides and the API, `{address: Markdown or picture}`."""
    package = _package(_root(config))
    if missing := undocumented(package):
        raise PluginError(f"Public names without a docstring: {', '.join(missing)}")
    return guide_pages(_root(config) / "guides") | api_pages(package)


def _root(config):
    return pathlib.Path(config.config_file_path).parent


@functools.cache
def _package(root):
    """Returns the package, read once."""
    return load(root)


def on_page_markdown(markdown, page, config, files):
    """Adds the table of equations to the page of the theory, and leads links out of docs to the copies."""
    if page.file.src_uri == "theory.md":
        markdown = f"{markdown}\n\n{equations_table(_package(_root(config)))}\n"
    return REPOSITORY_LINK.sub(lambda match: repository_address(match[1]), markdown)


def on_page_content(html, page, config, files):
    """Adds formulas and links to the HTML of a page."""
    return with_links(with_mathml(html))
