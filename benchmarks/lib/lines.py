"""Lines of results, dicts with equal keys: selection by values, values of a key, mean and standard error."""

import json

import numpy as np


def read(folder, pattern):
    """Returns the lines of all files of a folder whose names match a pattern, in the order of the names."""
    return [json.loads(line) for file in sorted(folder.glob(pattern)) for line in file.read_text().splitlines()]


def completed(file, keys, make):
    """Returns the lines of a file of JSON lines, and first makes and adds the lines of missing keys.

    Args:
        file: a path.
        keys: dicts, one for each run.
        make: function of the values of a key, in their order, which yields the lines of the run.
    """
    lines = read(file.parent, file.name)
    for key in keys:
        if not select(lines, **key):
            new = [key | line for line in make(*key.values())]
            lines += new
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as out:
                out.writelines(json.dumps(line) + "\n" for line in new)
            print(*map(_short, new), sep="\n", flush=True)
    return lines


def _short(line):
    """Returns a line without lists, such as the measures of every epoch."""
    return {name: value for name, value in line.items() if not isinstance(value, list)}


def select(lines, **values):
    """Returns the lines with these values."""
    return [line for line in lines if all(line.get(name) == value for name, value in values.items())]


def distinct(lines, name):
    """Returns the values of a key, in order of first appearance."""
    return list(dict.fromkeys(line[name] for line in lines))


def with_error(values, digits=3, sign=""):
    """Returns mean +- standard error as text, or "" if there are no numbers. With the sign "+" gains have a plus."""
    if np.isnan(np.asarray(values, float)).all():
        return ""
    error = f" +- {standard_error(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):{sign}.{digits}f}{error}"


def gain(values, digits=3):
    """Returns a mean difference with its sign and standard error, bold beyond two standard errors."""
    text = with_error(values, digits, "+")
    return f"**{text}**" if len(values) > 1 and abs(np.mean(values)) > 2 * standard_error(values) else text


def paired(records, others, key):
    """Returns the differences of a value to other lines of the same seed, for the seeds that both have."""
    base = {line["seed"]: line[key] for line in others if key in line}
    return np.array([line[key] - base[line["seed"]] for line in records if key in line and line["seed"] in base])


def means(records, names):
    """Returns the mean +- standard error of each of these values."""
    return [with_error([line[name] for line in records]) for name in names]


def table(records, row, columns):
    """Returns a row for each value of the key `row`, with the means of the columns that the lines have."""
    columns = [name for name in columns if any(name in line for line in records)]
    names = distinct(records, row)
    return [[row, *columns], *([name, *means(select(records, **{row: name}), columns)] for name in names)]


def standard_error(values):
    """Returns the standard error of a mean of two values or more."""
    return np.std(values, ddof=1) / np.sqrt(len(values))
