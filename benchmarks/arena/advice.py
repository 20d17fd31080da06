"""The method to begin with on each noise: chosen on all seeds but one, and scored on the one that is left out.

The best of fifty rows on the data that chose it is better than early stopping by chance alone, and often clearly so.
Left-out scores are not: their mean over the seeds is what a choice by the arena is worth to a user. They share most of
the seeds that chose, so two standard errors would name a winner among equals in some 11% of the noises; three are asked
for here, and `by_chance` says how often that happens.
"""

import numpy as np

from benchmarks.arena.gains import BASE, is_clear, points, standard_error

CLEAR = 3.0  # standard errors


def held_out(gains):
    """The gain in each column of the best row of all other columns, `(rows, seeds)` to `(seeds,)`.

    A single column gives nothing.
    """
    others = gains.sum(axis=1, keepdims=True) - gains
    return gains[others.argmax(axis=0), np.arange(gains.shape[1])] if gains.shape[1] > 1 else np.zeros(0)


def has_winner(gains):
    """True if the left-out gains are clearly above 0."""
    values = held_out(gains)
    return len(values) > 1 and values.mean() > CLEAR * standard_error(values)


def by_chance(rows, seeds, repeats=1000):
    """The share of noises with a winner where all rows, and what they are compared with, differ by chance alone."""
    normal = np.random.default_rng(0).normal(size=(repeats, rows + 1, seeds))
    return np.mean([has_winner(accuracies - accuracies[:1]) for accuracies in normal])


def rivals(results):
    """All (method, head) that a user can have: nothing that is told clean labels."""
    return [(method, head) for head in results.heads for method in results.methods if not results.knows[method]]


def gains_of(results, noise):
    """The rivals with all seeds of the base, and their gains over it, `(rivals, seeds)`."""
    over = {rival: results.gain(noise, rival, BASE) for rival in rivals(results)}
    seeds = len(over.get(BASE, ()))
    found = {rival: values for rival, values in over.items() if seeds and len(values) == seeds}
    return list(found), np.array(list(found.values()))


def row(results, noise):
    """The cells of a noise."""
    names, gains = gains_of(results, noise)
    if not names:
        return [noise, "", "", ""]
    best, *others = (names[index] for index in np.argsort(-gains.mean(axis=1), kind="stable"))
    alike = [rival for rival in others if not is_clear(results.gain(noise, best, rival))]
    is_named = best != BASE and has_winner(gains)
    listed = alike if is_named else [rival for rival in (best, *alike) if rival != BASE]
    begin = name_of(best) if is_named else "early stopping: none is clearly better"
    return [noise, begin, points(held_out(gains), is_named), names_of(listed)]


def table(results):
    """A row for each noise: the best that a user can have, its gain, and what is as good.

    The gain is that on seeds that did not choose it.
    """
    head = [
        "your noise looks like",
        "begin with",
        "points over early stopping, left-out seeds",
        "within two standard errors of the best",
    ]
    return [head, *(row(results, noise) for noise in results.noises)]


def how(results):
    """The rule of the table in words, and the share of it that chance alone would make."""
    rows, seeds = max(
        (gains_of(results, noise)[1].shape for noise in results.noises if gains_of(results, noise)[0]), default=(0, 0)
    )
    if seeds < 2:
        return "It needs two seeds: one chooses, and the other one scores."
    chance = by_chance(rows - 1, seeds)
    any_of_all = 1.0 - (1.0 - chance) ** len(results.noises)
    return (
        f"The best of {rows} rows is chosen on all seeds but one and scored on the one left out; the points are the "
        f"mean over {seeds} such seeds. It is named, as chosen on all seeds, beyond {CLEAR:g} standard errors. By "
        f"chance alone, were all rows equal, {chance:.0%} of the noises would have a name, and one or more of "
        f"{len(results.noises)} noises in {any_of_all:.0%} of the cases."
    )


def name_of(rival):
    """The method, and its head if it is another than Dense."""
    return rival[0] if rival[1] == BASE[1] else f"{rival[0]} ({rival[1]})"


def names_of(found, most=4):
    """The first, and how many more."""
    more = [f"{len(found) - most} more"] if len(found) > most else []
    return "; ".join([*map(name_of, found[:most]), *more])
