"""The guides as pages: text and code in turn, and below the code of a cell what it printed and drew."""

from benchmarks.lib import results
from guides.notebooks.reader import cells


def guide_pages(folder):
    """Markdown of the guides in a folder, and the pictures of their outputs, `{address: content}`."""
    pages = {}
    for path in sorted(folder.glob("*.py")):
        drawn = {figure.stem.rpartition("-")[2]: figure for figure in (folder / "outputs").glob(f"{path.stem}-*.png")}
        run = results.read(folder / "outputs" / f"{path.stem}.json")
        about = f"Run with `{run.command}`, {results.about(run)}, commit {run.commit}."
        figures = {place: figure.name for place, figure in drawn.items()}
        pages[f"guides/{path.stem}.md"] = guide_page(path.read_text(), run.tables, figures, about)
        pages |= {f"guides/{figure.name}": figure.read_bytes() for figure in drawn.values()}
    return pages


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
