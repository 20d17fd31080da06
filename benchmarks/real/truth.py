"""How good is a model, by noisy labels and T? Intervals, sets and the check of T, on labels of people and rules.

python -m benchmarks.real.truth [--sets NAME ...] [--splits 4] [--redraws 6] [--size 4000] [--judged 2000]
                                [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

A split trains logistic regression on noisy labels of at most `size` examples, and of two in five at most. All others
are the population of which the true accuracy is known. A redraw takes examples of it with noisy labels, by which the
model is judged (at most `judged`, and half of them), and of the rest 20 K at random, whose true classes are given. T is

* of all true classes of the rest ("gold labels"), or of those 20 K (`CountedTransition`);
* of the noisy labels alone: the confident joint, or the T of `diagnose`;
* of the votes: Dawid and Skene's for each annotator, those left out whose T is refused; or, for the majority label,
  of their most probable classes.

Beside them stand the fraction of the labels that agree with the model, with a plain interval, and the accuracy on those
20 K true classes alone. The check is by the same 20 K, that of annotators by their votes. Examples for which nobody
voted are left out.
"""

import functools
import itertools

import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import data, features, plain

SETS, LEVEL, DRAWS, CLEAN = tuple(data.SETS), 0.9, 200, 20
MOST_CONDITION = 100  # of a T that `true_performance` takes
AGREE, ALONE = "labels agree", "clean labels alone"
GOLD, COUNTED, JOINT, DIAGNOSED = "gold labels", "20 clean labels a class", "confident joint", "diagnose_noise"
ANNOTATORS, MAJORITY = "annotators, Dawid and Skene", "majority, Dawid and Skene"
BY_TRANSITION = (GOLD, COUNTED, JOINT, DIAGNOSED, ANNOTATORS, MAJORITY)
POINTS = ("below 2", "2 to 5", "above 5")  # of the error of the accuracy
SEEN = ("in all", "check says no", "check finds nothing", "inside the plain interval", "outside it")


class Population:
    """Examples that the model was not trained on: probabilities, labels, true classes, votes."""

    def __init__(self, name, split, options):
        found = features.of(name, options.data, options.cache, split)
        there = np.flatnonzero((found.votes >= 0).any(axis=1)) if found.votes is not None else np.arange(len(found.x))
        order = np.random.default_rng([split, 7]).permutation(there)
        trained, held_out = np.split(order, [min(options.size, len(order) * 2 // 5)])
        x, x_held_out = plain.standardized(found.x[trained], found.x[held_out])
        self.units, self.y, self.true = found.units, found.labels[held_out].astype(int), found.truth[held_out]
        self.votes = found.votes[held_out] if found.votes is not None else None
        y, (train, validation) = found.labels[trained], plain.split(trained, split)
        (log_p,), _ = plain.logistic_regression(x[train], y[train], x[validation], y[validation], x_held_out)
        p = np.full((len(held_out), self.units), 1e-6)
        p[:, np.unique(y[train])] = np.maximum(np.exp(log_p), 1e-6)
        self.p = p / p.sum(axis=1, keepdims=True)
        self.right = self.p.argmax(axis=1) == self.true

    def redraw(self, seed, judged):
        """Places of the examples with noisy labels, of all others, and of those of these whose classes are given."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        noisy, rest = np.split(order, [min(judged, len(order) // 2)])
        return noisy, rest, rest[: CLEAN * self.units]


def transition_of(way, of, noisy, rest, clean):
    """T, the labels and the places that go with it."""
    from keras_het.label_noise import dawid_skene, estimate_by_confident_joint
    from keras_het.labels.diagnosis import diagnose
    from keras_het.ops.transition import condition_number
    from keras_het.truth import CountedTransition

    if way in (GOLD, COUNTED):
        some = rest if way == GOLD else clean
        found = CountedTransition.from_labels(of.true[some], of.y[some], of.units)
        return found.transition if way == GOLD else found, of.y, noisy
    if way == JOINT:
        return lambda p, y: estimate_by_confident_joint(y, p), of.y, noisy
    if way == DIAGNOSED:
        return diagnose(of.p[noisy], of.y[noisy]).transition, of.y, noisy
    found = dawid_skene(of.votes[noisy], of.units)
    if way == MAJORITY:
        joint = found.probabilities.T @ np.eye(of.units)[of.y[noisy]] + 1e-9
        return joint / joint.sum(axis=1, keepdims=True), of.y, noisy
    able = [m for m, each in enumerate(found.transitions) if condition_number(each) <= MOST_CONDITION]
    if not able:
        raise ValueError("The T of every annotator is refused")
    votes = of.votes[:, able]
    return found.transitions[able], votes, noisy[(votes[noisy] >= 0).any(axis=1)]


def judged(of, way, seed, noisy, rest, clean):
    """What a T says of the accuracy, the cover and size of its sets, and what its check says; or why it is refused."""
    from keras_het.truth import check_transition, conformal_sets, true_performance

    try:
        transition, labels, noisy = transition_of(way, of, noisy, rest, clean)
        arguments = of.p[noisy], labels[noisy], transition
        accuracy = true_performance(*arguments, draws=DRAWS, seed=seed).accuracy
        rule = conformal_sets(*arguments, level=LEVEL, draws=DRAWS // 2, seed=seed)
        if callable(transition):
            transition = transition(*arguments[:2])
        beside = (of.p[noisy], labels[noisy], transition)
        if labels.ndim == 1:
            beside = (of.p[clean], labels[clean], transition, of.true[clean])
        check = check_transition(*beside, seed=seed)
    except ValueError as error:
        return {"refused": str(error)[:60]}
    sets = rule.sets(of.p[rest])
    return {
        **interval(accuracy.value, accuracy.low, accuracy.high),
        "cover": float(sets[np.arange(len(rest)), of.true[rest]].mean()),
        "size": float(sets.sum(axis=1).mean()),
        "holds": check.holds,
    }


def interval(value, low, high):
    """An estimate and its ends as numbers."""
    return {"estimate": float(value), "low": float(low), "high": float(high)}


def wilson(hits):
    """The fraction of hits, and its plain 95% interval."""
    n, z, fraction = len(hits), 1.959964, hits.mean()
    centre, half = fraction + z**2 / (2 * n), z * np.sqrt(fraction * (1 - fraction) / n + z**2 / (4 * n**2))
    return interval(fraction, *((centre + side * half) / (1 + z**2 / n) for side in (-1, 1)))


def measured(of, split, redraw, options):
    """The lines of a redraw, one for each way."""
    seed = [split, 8, redraw]
    noisy, rest, clean = of.redraw(seed, options.judged)
    known = {"true": float(of.right.mean()), "judged": len(noisy), "clean": len(clean)}
    yield {"way": AGREE, **known, **wilson(of.p[noisy].argmax(axis=1) == of.y[noisy])}
    yield {"way": ALONE, **known, **wilson(of.right[clean])}
    for way in BY_TRANSITION[: None if of.votes is not None else -2]:
        yield {"way": way, **known, **judged(of, way, seed, noisy, rest, clean)}


def error(line):
    """Points by which the estimate is above the truth."""
    return 100 * (line["estimate"] - line["true"])


def between(value, line):
    """Whether a value is within the interval of a line."""
    return line["low"] <= value <= line["high"]


def holds(line):
    """Whether the interval holds the truth."""
    return between(line["true"], line)


def says_no(line):
    """Whether the check says no."""
    return line["holds"] is False


def mean(own, value):
    """The mean of a value of lines; nan of none."""
    return float(np.mean([value(line) for line in own])) if own else np.nan


def answered(found, way):
    """The lines of a way that were not refused."""
    return [line for line in lines.select(found, way=way) if "refused" not in line]


def cell(own, text):
    """The text of the lines that were not refused, and the fraction that was."""
    kept = [line for line in own if "refused" not in line]
    if len(kept) < len(own):
        return f"{text(kept)}, {1 - len(kept) / len(own):.0%} refused" if kept else "refused"
    return text(kept) if kept else ""


def by_set(found, ways, text):
    """A table of the sets and their true accuracy by the ways, of texts of lines."""
    rows = [["set", "true accuracy", *ways]]
    for name in [name for name in SETS if lines.select(found, set=name)]:
        own = lines.select(found, set=name)
        cells = (cell(lines.select(own, way=way), text) for way in ways)
        rows.append([name, f"{mean(own, lambda line: line['true']):.3f}", *cells])
    return rows


def by_error(found):
    """How often the check says no, by how many points the accuracy is off."""
    rows = [["T", *(f"off by {points} points" for points in POINTS)]]
    for way in BY_TRANSITION:
        own = answered(found, way)
        groups = [[line for line in own if np.digitize(abs(error(line)), (2, 5)) == place] for place in range(3)]
        rows.append([way, *(f"{mean(group, says_no):.2f} of {len(group)}" if group else "" for group in groups)])
    return rows


def trust(found):
    """How far the accuracy is off, how often its interval holds, and redraws, by what a user can see."""
    rows, plain_of = [["T", *SEEN]], {key_of(line): line for line in lines.select(found, way=ALONE)}
    for way in BY_TRANSITION:
        groups = [own := answered(found, way)]
        groups += [[line for line in own if line["holds"] is says] for says in (False, True)]
        inside = [between(line["estimate"], plain_of[key_of(line)]) for line in own]
        groups += [[line for line, within in zip(own, inside, strict=True) if within is says] for says in (True, False)]
        rows.append([way, *map(off, groups)])
    return [*rows, [ALONE, off(lines.select(found, way=ALONE)), *[""] * (len(SEEN) - 1)]]


def key_of(line):
    """Set, split and redraw."""
    return line["set"], line["split"], line["redraw"]


def off(own):
    """How many points estimates are off on average, how often intervals hold, and the number, as text."""
    return f"{mean(own, lambda line: abs(error(line))):.1f} ({mean(own, holds):.2f}), {len(own)}" if own else ""


def half_width(line):
    """Half the width of the interval, in points."""
    return 50 * (line["high"] - line["low"])


def tables(found):
    """Error and cover of the intervals, their widths, sets and checks."""
    every = (AGREE, ALONE, *BY_TRANSITION)

    def sets_of(kept):
        return f"{mean(kept, lambda line: line['cover']):.2f} ({mean(kept, lambda line: line['size']):.1f})"

    def errors_of(kept):
        return f"{mean(kept, error):+.1f} ({mean(kept, holds):.2f})"

    return {
        "error in points, and how often 95% intervals hold the truth": by_set(found, every, errors_of),
        "half width in points": by_set(found, every, lambda kept: f"{mean(kept, half_width):.1f}"),
        "sets of level .9": by_set(found, BY_TRANSITION, sets_of),
        "how often the check says no": by_set(found, BY_TRANSITION, lambda kept: f"{mean(kept, says_no):.2f}"),
        "how often the check says no, by the error": by_error(found),
        "error in points, how often intervals hold, and redraws": trust(found),
    }


def main():
    """Runs what is missing, and makes the tables."""
    parser = features.experiment(__doc__, SETS, splits=4, redraws=6, size=4000, judged=2000)
    options = parser.parse_args()
    if options.quick:
        options.size, options.judged, options.splits, options.redraws = 500, 300, 1, 1
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "real_truth.jsonl"
    cells = itertools.product(options.sets, range(options.splits), range(options.redraws))
    keys = [{"set": name, "split": split, "redraw": redraw} for name, split, redraw in cells]
    found = lines.read(options.output, file.name)
    of = functools.lru_cache(1)(lambda name, split: Population(name, split, options))
    if not options.render:
        found = lines.completed(file, keys, lambda name, *place: measured(of(name, place[0]), *place, options))
    publish(options.output, "real_truth", tables(found), sorted(lines.distinct(found, "split")))


if __name__ == "__main__":
    main()
