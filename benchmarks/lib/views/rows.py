"""Cells and rows of tables, which the views share."""


def value(cell):
    """A cell without its standard error."""
    return cell.replace("*", "").split(" +- ")[0]


def columns_of(table):
    """`{(first cell of a row, column): cell}`."""
    return {(row[0], column): cell for row in table[1:] for column, cell in zip(table[0][1:], row[1:], strict=True)}


def dicts(table):
    return [dict(zip(table[0], row, strict=True)) for row in table[1:]]


def bold(cell):
    mean, error = map(float, cell.split(" +- "))
    return f"**{cell}**" if abs(mean) > 2.0 * error else cell
