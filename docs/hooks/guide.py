"""The guides as pages, text, code and what it printed and drew in turn; and a page that shows all of them."""

from typing import NamedTuple

from mkdocs.exceptions import PluginError

from benchmarks.lib import results
from guides.notebooks.reader import cells, header_of

# All guides, from what most people want first to what few need.
GROUPS = {
    "Your own data, your own model": ("image_folder", "text_strings", "table_sklearn", "finetune_kerashub"),
    "Who or what is confused, and how good is the model": ("llm_labels", "label_flips", "annotators"),
    "For researchers": ("example_index",),
}

INDEX = """\
# Guides

Each is a script, from its data to its result, with what it printed and drew. Download the repository, and run one with
`python guides/NAME.py`.
"""

CARD = """\
-   [![]({picture})]({name}.md)

    **[{title}]({name}.md)**

    {description}

    {took}
"""


class Guide(NamedTuple):
    """A guide and its outputs.

    Attributes:
        source: its text.
        run: the result file of its run.
        figures: what it drew, paths by the place of a cell among the code.
    """

    source: str
    run: results.Run
    figures: dict


def guide_pages(folder):
    """Markdown of the guides in a folder, and the pictures of their outputs, `{address: content}`, the index first."""
    guides = {name: read(folder, name) for names in GROUPS.values() for name in names}
    if missing := {path.stem for path in folder.glob("*.py")} - set(guides):
        raise PluginError(f"Guides of no group in docs/hooks/guide.py: {', '.join(sorted(missing))}")
    pages = {"guides/index.md": index_page(guides)}
    for name, guide in guides.items():
        run, figures = guide.run, {place: path.name for place, path in guide.figures.items()}
        about = f"Run with `{run.command}`, {results.about(run)}, commit {run.commit}; it took {run.note[0]}."
        pages[f"guides/{name}.md"] = guide_page(guide.source, run.tables, figures, about)
        pages |= {f"guides/{path.name}": path.read_bytes() for path in guide.figures.values()}
    return pages


def read(folder, name):
    """A guide of a folder."""
    drawn = {int(path.stem.rpartition("-")[2]): path for path in (folder / "outputs").glob(f"{name}-*.png")}
    figures = {str(place): drawn[place] for place in sorted(drawn)}
    run = results.read(folder / "outputs" / f"{name}.json")
    return Guide((folder / f"{name}.py").read_text(), run, figures)


def index_page(guides):
    """Markdown of a card for each guide: its last figure, title, description, and how long it ran."""
    parts = [INDEX]
    for title, names in GROUPS.items():
        cards = "\n".join(card(name, guides[name]) for name in names)
        parts.append(f'## {title}\n\n<div class="guides" markdown>\n\n{cards}\n</div>\n')
    return "\n".join(parts)


def card(name, guide):
    """Markdown of a guide in the index, an item of a list."""
    fields = header_of(guide.source)
    *_, picture = guide.figures.values()
    return CARD.format(
        name=name,
        picture=picture.name,
        title=fields["Title"],
        description=fields["Description"],
        took=f"{guide.run.note[0]}, {guide.run.machine.partition(' (')[0]}",
    )


def guide_page(source, printed, figures, about):
    """Markdown of a guide; what its cells printed and drew is known by the place of a cell among the code."""
    head, *rest = cells(source)
    parts, place = [head[1], about], 0
    for kind, text in rest:
        if kind == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [f"```text\n{printed[str(place)]}\n```"] if printed.get(str(place)) else []
        parts += [f"![What this code draws]({figures[str(place)]})"] if str(place) in figures else []
        place += 1
    return "\n\n".join(parts) + "\n"
