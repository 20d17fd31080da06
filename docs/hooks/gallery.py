"""The gallery as pages: an index of cards, and for each heading a page of its entries with what they print and draw."""

import textwrap

from benchmarks.lib import results
from guides.gallery.lib.contents import CONTENTS
from guides.gallery.lib.entries import COLUMNS, names_used, read

LINES = 9  # of a text that a card shows


def gallery_pages(folder):
    """Markdown of the gallery in a folder, and its pictures, `{address: content}`."""
    runs = {path.stem: results.read(path) for path in sorted((folder / "outputs").glob("*.json"))}
    drawn = {path.stem: path for path in sorted((folder / "outputs").glob("*.png"))}
    pages = {"gallery/index.md": index_page(folder, runs, drawn)}
    for address, (title, names) in CONTENTS.items():
        parts = [entry_section(read(folder / f"{name}.py"), runs[name], name in drawn) for name in names]
        pages[f"gallery/{address}.md"] = "\n\n".join([f"# {title}", *parts, how_made(runs[name] for name in names)])
    return pages | {f"gallery/{path.name}": path.read_bytes() for path in drawn.values()}


def index_page(folder, runs, drawn):
    """Markdown of the index: under each heading a card for each entry, with its picture or the start of its text."""
    parts = ["# Gallery", "What the package finds, draws and prints. Every picture links to the lines that make it."]
    for address, (title, names) in CONTENTS.items():
        cards = (card(address, read(folder / f"{name}.py"), runs[name], name in drawn) for name in names)
        parts += [f"## [{title}]({address}.md)", '<div class="gallery" markdown>', *cards, "</div>"]
    return "\n\n".join(parts) + "\n"


def card(address, entry, run, is_drawn):
    """Markdown of a card, which as a whole is the link of its title."""
    shown = picture(entry) if is_drawn else text("\n".join(run.tables["printed"].splitlines()[:LINES]))
    return f'<div class="entry" markdown>\n\n[{entry.title}]({address}.md#{entry.name})\n\n{shown}\n\n</div>'


def entry_section(entry, run, is_drawn):
    """Markdown of an entry: what it shows, its code, its outputs, and the names of the package that it uses."""
    parts = [f"## {entry.title} {{ #{entry.name} }}", entry.description, f"```python\n{entry.code}\n```"]
    parts += [text(run.tables["printed"])] if run.tables["printed"] else []
    parts += [picture(entry)] if is_drawn else []
    names = ", ".join(f"`{name}`" for name in names_used(entry.code))
    return "\n\n".join([*parts, *([f"In it: {names}"] if names else [])])


def picture(entry):
    """Markdown of what an entry draws."""
    return f"![{entry.description}]({entry.name}.png)"


def text(printed):
    """Markdown of what an entry prints; sentences are wrapped, and lines of tables are not."""
    lines = (line if "  " in line.strip() else textwrap.fill(line, COLUMNS) for line in printed.splitlines())
    return "```text\n" + "\n".join(lines) + "\n```"


def how_made(runs):
    """The command that made the outputs of a page, and the runs, most often one."""
    runs = list(runs)
    abouts = dict.fromkeys(f"{results.about(run)}, commit {run.commit}" for run in runs)
    return f"Outputs of `{runs[0].command}`: {'; '.join(abouts)}.\n"
