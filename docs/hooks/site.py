"""What mkdocs does beside the pages in this folder: pages made of the package and of the guides, formulas, links."""

import ast
import functools
import pathlib

from api import api_pages
from equations import equations_page
from formulas import with_mathml
from guide import guide_pages
from links import with_links
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from package import load, undocumented

RESULTS = "benchmarks/results"


def on_config(config):
    """Adds the made pages to the navigation, below the entries that name their folder."""
    pages = made_pages(config)
    config.nav = [_filled(entry, pages) for entry in config.nav]
    return config


def _filled(entry, pages):
    """An entry of the navigation; of `Title: folder/` the pages of that folder."""
    ((title, content),) = entry.items()
    if isinstance(content, list):
        return {title: [_filled(inner, pages) for inner in content]}
    made = [page for page in pages if page.startswith(content) and page.endswith(".md")]
    return {title: made} if content.endswith("/") else entry


def on_files(files, config):
    """Adds the pages themselves."""
    for address, text in made_pages(config).items():
        if (existing := files.get_file_from_path(address)) is not None:
            files.remove(existing)
        files.append(File.generated(config, address, content=text))
    return files


def made_pages(config):
    """The pages that nobody writes, Markdown or a picture, `{address: content}`."""
    root = pathlib.Path(config.config_file_path).parent
    package = _package(root)
    if missing := undocumented(package):
        raise PluginError(f"Public names without a docstring: {', '.join(missing)}")
    template = pathlib.Path(config.docs_dir, "equations.md").read_text()
    equations = {"equations.md": equations_page(package, template)}
    return guide_pages(root / "guides") | api_pages(package) | table_pages(root / RESULTS) | equations


@functools.cache
def _package(root):
    """The package, read once."""
    return load(root)


def table_pages(folder):
    """The pages of all tables, beside the result files of the benchmarks."""
    return {f"tables/{path.name}": path.read_text() for path in sorted(folder.glob("*.md"))}


def on_page_markdown(markdown, page, config, files):
    """Links to the pages of tables, which lie in another folder than on the site; the version; the order of results."""
    if page.file.src_uri.startswith("tables/"):
        page.meta["search"] = {"boost": 0.2}  # else they hide the pages that explain them
    version = _package(pathlib.Path(config.config_file_path).parent)["base.version.__version__"].value
    return markdown.replace(f"../{RESULTS}/", "tables/").replace("{{ version }}", ast.literal_eval(version))


def on_page_content(html, page, config, files):
    """Formulas and links, in what Markdown has become."""
    return with_links(with_mathml(html))
