"""Expectations of the methods, from expectations.md."""

import pathlib

PAGE = pathlib.Path(__file__).with_suffix(".md")


def read(path=PAGE):
    """A dict: for each method what is expected on each noise, "+", "=" or "-", and why."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in path.read_text().splitlines()
        if line.startswith("|")
    ]
    head = rows[0]
    return {row[0]: (dict(zip(head[1:-1], row[1:-1], strict=True)), row[-1]) for row in rows[2:]}
