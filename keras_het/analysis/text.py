"""Tables as text."""


def aligned(cells: list[list[str]]) -> list[str]:
    """The lines of a table, with columns that end in line.

    Args:
        cells: texts, a list for each line.

    Example:
        >>> aligned([["index", "p"], ["7", "0.25"]])
        ['index     p', '    7  0.25']
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.rjust, line, widths)).rstrip() for line in cells]
