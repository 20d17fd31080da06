"""Makes a page of each guide, with what its code printed and drew, and a page that shows all of them."""

from typing import NamedTuple

from benchmarks.lib import results
from guides.notebooks.reader import cells, header_of

# The guides that most readers want come first.
FIRST = ("kerashub_features", "image_folder", "text_strings", "table_sklearn", "llm_labels", "annotators")

INDEX = """\
# All guides

Each guide is one script, from the data to the result, with everything it printed and drew.
Run one in a clone of the repository with `python guides/NAME.py`.

<div class="guides" markdown>

{cards}
</div>
"""

CARD = """\
-   [![{title}]({picture})]({name}.md)

    **[{title}]({name}.md)**

    {description}

    {time}
"""


class Guide(NamedTuple):
    """A guide and its outputs.

    Attributes:
        source: text of the script.
        run: result file of its run.
        figures: paths of its pictures, by the index of the code cell.
    """

    source: str
    run: results.Run
    figures: dict


def guide_pages(folder):
    """Returns the pages of a folder of guides and their pictures, `{address: content}`, the index first."""
    names = sorted(path.stem for path in folder.glob("*.py"))
    guides = {name: read(folder, name) for name in sorted(names, key=lambda name: [*FIRST, name].index(name))}
    pages = {"guides/index.md": INDEX.format(cards="\n".join(card(*item) for item in guides.items()))}
    for name, guide in guides.items():
        pages[f"guides/{name}.md"] = guide_page(guide)
        pages |= {f"guides/{path.name}": path.read_bytes() for path in guide.figures.values()}
    return pages


def read(folder, name):
    """Returns a guide of a folder."""
    pictures = {int(path.stem.rpartition("-")[2]): path for path in (folder / "outputs").glob(f"{name}-*.png")}
    run = results.read(folder / "outputs" / f"{name}.json")
    return Guide((folder / f"{name}.py").read_text(), run, dict(sorted(pictures.items())))


def card(name, guide):
    """Returns a guide in the index: its last picture, title, description and duration."""
    fields = header_of(guide.source)
    picture = [*guide.figures.values()][-1].name
    time = f"{guide.run.note[0]}, {guide.run.machine.partition(' (')[0]}"
    return CARD.format(name=name, picture=picture, title=fields["Title"], description=fields["Description"], time=time)


def guide_page(guide):
    """Returns a guide as Markdown: text, code, and below each code cell its output."""
    head, *rest = cells(guide.source)
    parts, index = [head[1]], 0
    for kind, text in rest:
        if kind == "markdown":
            parts.append(text)
            continue
        printed, figure = guide.run.tables.get(str(index)), guide.figures.get(index)
        parts.append(f"```python\n{text}\n```")
        parts += [f"```text\n{printed}\n```"] if printed else []
        parts += [f"![Picture that this code draws]({figure.name})"] if figure else []
        index += 1
    run = guide.run
    about = f"Run with `{run.command}` in {run.note[0]}: {results.about(run)}, commit {run.commit}."
    return "\n\n".join([*parts, f"<small>{about}</small>"]) + "\n"
