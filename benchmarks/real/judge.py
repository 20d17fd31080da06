"""How good is a model, by labels of all and verified ones of a few? Prediction-powered inference, beside T and alone.

python -m benchmarks.real.judge [--sets NAME ...] [--splits 1] [--redraws 2000] [--size 4000] [--judged 2000]
                                [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Models, labels and populations are those of `benchmarks.real.truth`. A redraw takes `judged` examples of the population,
with replacement, of which the first are verified: 100, or 20 for each class. Ways are

* the fraction of labels that agree with the model;
* the verified examples alone (Jeffreys' interval), and `verified_performance`;
* T, counted on the same verified examples (`CountedTransition`), or on all true classes of the population ("gold
  labels"), with `true_performance`, in a tenth of the redraws.

Three further sets have labels that are made from the true classes of CIFAR-10: flips to the next class in 30% of the
cases ("by class"), to the model's second choice, the more often the less sure it is ("by example"), and to the model's
own choice in eight of ten examples where it errs ("shared").

A further table is of 200 verified examples that were drawn alike, or the more often, the less sure it is that the
prediction is right, by model and label together: with probabilities as sqrt(q (1 - q) + .05), q by the T of
`diagnose`. The interval is by `inclusion`.
"""

import functools
import itertools

import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import truth

BASE = "CIFAR-10N aggregate"
PLANTED = ("planted by class", "planted by example", "planted shared")
SETS, DRAWS, A_CLASS, FEW, PART = (*truth.SETS, *PLANTED), 100, 20, 100, 10
AGREE, ALONE, POWERED = "labels agree", "verified alone", "verified_performance"
BY_COUNTS, BY_GOLD = "T, counted on them", "T, gold labels"
WAYS = (AGREE, ALONE, POWERED, BY_COUNTS, BY_GOLD)
ALIKE, UNSURE, DRAWN = "drawn alike", "drawn where unsure", 200
OTHERS = ("labels that are right", "recall of classes", "precision of classes")


def planted(of, kind, seed):
    """The population with labels that are made from its true classes."""
    rng = np.random.default_rng([seed, 11])
    order, drawn = np.argsort(-of.p, axis=1), rng.random(len(of.true))
    first, second = order[:, 0], order[:, 1]
    if kind == PLANTED[0]:
        of.y = np.where(drawn < 0.3, (of.true + 1) % of.units, of.true)
    elif kind == PLANTED[1]:
        other = np.where(first == of.true, second, first)
        of.y = np.where(drawn < 1.0 - of.p.max(axis=1), other, of.true)
    else:
        of.y = np.where((first != of.true) & (drawn < 0.8), first, of.true)
    return of


def population(name, split, options):
    """The population of a set, as `benchmarks.real.truth` has it."""
    if name in PLANTED:
        return planted(truth.Population(BASE, split, options), name, split)
    return truth.Population(name, split, options)


def inside(found, value):
    """How many of the intervals hold the values, of those that there are."""
    return np.mean(((found.low <= value) & (value <= found.high))[~np.isnan(value + found.low)])


def by_transition(p, y, make_transition, seed):
    """The accuracy by T; None if T is refused."""
    from keras_het.truth import true_performance

    try:
        return true_performance(p, y, make_transition(), draws=DRAWS, seed=seed).accuracy
    except ValueError:
        return None


def measured(of, number, options):
    """Lines of a population: a way each, with cover, half width and error of all redraws."""
    from keras_het.truth import CountedTransition, verified_performance

    predicted, accuracy = of.p.argmax(axis=1), of.right.mean()
    recall, precision = (
        np.array([of.right[classes == k].mean() if (classes == k).any() else np.nan for k in range(of.units)])
        for classes in (of.true, predicted)
    )
    wanted = dict(zip(OTHERS, (np.mean(of.y == of.true), recall, precision), strict=True))
    gold, found, others, worth = CountedTransition.from_labels(of.true, of.y, of.units).transition, {}, [], []
    for redraw in range(options.redraws):
        rows = np.random.default_rng([redraw, 9]).integers(len(of.y), size=options.judged)
        p, y, true = of.p[rows], of.y[rows], of.true[rows]
        own = verified_performance(p, y, dict(enumerate(true[:number].tolist())))
        plain = truth.wilson(predicted[rows] == y)
        found.setdefault(AGREE, []).append((plain["estimate"], plain["low"], plain["high"]))
        for way, each in ((ALONE, own.alone), (POWERED, own.accuracy)):
            found.setdefault(way, []).append((each.value, each.low, each.high))
        of_others = zip((own.label_accuracy, own.recall, own.precision), wanted.values(), strict=True)
        others.append([inside(each, np.asarray(value)) for each, value in of_others])
        worth.append(own.worth)
        if redraw % PART == 0:
            counted = functools.partial(CountedTransition.from_labels, true[:number], y[:number], of.units)
            for way, make in ((BY_COUNTS, counted), (BY_GOLD, lambda: gold)):
                each = by_transition(p, y, make, redraw)
                found.setdefault(way, []).append((np.nan,) * 3 if each is None else (each.value, each.low, each.high))
    for way, values in found.items():
        value, low, high = np.array(values).T
        seen = ~np.isnan(value)
        line = {"way": way, "true": float(accuracy), "verified": number, "answered": float(seen.mean())}
        if seen.any():
            value, low, high = value[seen], low[seen], high[seen]
            line["cover"] = float(np.mean((low <= accuracy) & (accuracy <= high)))
            line["half"], line["error"] = float(np.mean(high - low) / 2), float(value.mean() - accuracy)
        if way == POWERED:
            line |= dict(zip(OTHERS, np.nanmean(others, axis=0).tolist(), strict=True))
            line["worth"] = float(np.median(worth))
        yield line


def unsure(p, y, number):
    """Probabilities of examples to be among so many that are drawn, the larger the less sure a prediction is right."""
    from keras_het.labels.diagnosis import diagnose

    joint = p * (diagnose(p, y).transition[:, y].T + 1e-3)
    q = joint[np.arange(len(p)), p.argmax(axis=1)] / joint.sum(axis=1)
    size = np.sqrt(q * (1.0 - q) + 0.05)
    return np.minimum(number * size / size.sum(), 1.0)


def systematic(chances, rng):
    """Places of a sample in which each example is with its own probability (Madow 1949)."""
    order = rng.permutation(len(chances))
    steps = np.floor(np.cumsum(chances[order]) + rng.random())
    return order[np.diff(steps, prepend=0.0) > 0]


def drawn(of, options):
    """Lines of a population: cover and half width where examples are drawn alike, and where they are not."""
    from keras_het.truth import verified_performance

    accuracy, found = of.right.mean(), {ALIKE: [], UNSURE: []}
    for redraw in range(options.redraws // 4):
        rng = np.random.default_rng([redraw, 12])
        rows = rng.integers(len(of.y), size=options.judged)
        p, y, true = of.p[rows], of.y[rows], of.true[rows]
        for way, chances in ((ALIKE, np.full(len(p), DRAWN / len(p))), (UNSURE, unsure(p, y, DRAWN))):
            places = systematic(chances, rng).tolist()
            own = verified_performance(p, y, {place: int(true[place]) for place in places}, inclusion=chances).accuracy
            found[way].append((own.low <= accuracy <= own.high, own.high - own.low, (own.value - accuracy) ** 2))
    for way, values in found.items():
        cover, width, square = np.mean(values, axis=0)
        yield {"way": way, "cover": cover, "half": width / 2.0, "deviation": float(np.sqrt(square))}


def of_drawn(found):
    """Rows of sets, by how examples were drawn."""
    rows = [["set", *(f"{way}: {what}" for way in (ALIKE, UNSURE) for what in ("cover", "half width", "error, rms"))]]
    for name in [name for name in SETS if lines.select(found, set=name)]:
        own = [lines.select(found, set=name, way=way) for way in (ALIKE, UNSURE)]
        cells = (
            [f"{mean_of(each, 'cover'):.3f}"] + [f"{mean_of(each, key, 100):.2f}" for key in ("half", "deviation")]
            for each in own
        )
        rows.append([name, *itertools.chain(*cells)])
    return rows


def table(found, text, ways=WAYS):
    """Rows of sets and numbers of verified examples, by the ways."""
    rows = [["set", "verified", "true accuracy", *ways]]
    for name in [name for name in SETS if lines.select(found, set=name)]:
        for number in lines.distinct(lines.select(found, set=name), "verified"):
            own = lines.select(found, set=name, verified=number)
            head = [name, str(number), f"{np.mean([line['true'] for line in own]):.3f}"]
            rows.append([*head, *(cell(lines.select(own, way=way), text) for way in ways)])
    return rows


def cell(own, text):
    """The text of the mean of lines; "refused" where T always was."""
    kept = [line for line in own if "cover" in line]
    if not kept:
        return "refused" if own else ""
    answered = np.mean([line["answered"] for line in own])
    return text(kept) + (f", {1 - answered:.0%} refused" if answered < 1 else "")


def mean_of(own, name, scale=1.0):
    """The mean of a value of lines."""
    return scale * float(np.mean([line[name] for line in own]))


def others(found):
    """Cover of what else `verified_performance` says, and what its verified examples are worth."""
    rows = [["set", "verified", "worth, alone", *OTHERS]]
    for line in table(found, lambda own: "|".join(map(str, own_others(own))), (POWERED,))[1:]:
        rows.append([*line[:2], *line[3].split("|")])
    return rows


def own_others(own):
    """Texts of the worth and of the covers."""
    return [f"{mean_of(own, 'worth'):.0f}", *(f"{mean_of(own, name):.3f}" for name in OTHERS)]


def tables(found, others_drawn):
    """Cover and errors, half widths, and the rest."""
    return {
        "how often 95% intervals hold the true accuracy, and the error in points": table(
            found, lambda own: f"{mean_of(own, 'cover'):.3f} ({mean_of(own, 'error', 100):+.1f})"
        ),
        "half width in points": table(found, lambda own: f"{mean_of(own, 'half', 100):.1f}"),
        "what else verified_performance says": others(found),
        "examples drawn alike, and where the prediction is unsure": of_drawn(others_drawn),
    }


def main():
    """Runs what is missing, and makes the tables."""
    parser = truth.features.experiment(__doc__, SETS, splits=1, redraws=2000, size=4000, judged=2000)
    options = parser.parse_args()
    if options.quick:
        options.size, options.judged, options.splits, options.redraws = 500, 300, 1, 20
    options.output.mkdir(parents=True, exist_ok=True)
    file, other = (options.output / f"real_{name}.jsonl" for name in ("judge", "drawn"))
    keys = [{"set": name, "split": split} for name, split in itertools.product(options.sets, range(options.splits))]
    found = lines.read(options.output, file.name)
    of = functools.lru_cache(1)(lambda name, split: population(name, split, options))
    if not options.render:

        def make(name, split):
            here = of(name, split)
            for number in sorted({FEW, A_CLASS * here.units}):
                if number < options.judged:
                    yield from measured(here, number, options)

        found = lines.completed(file, keys, make)
        lines.completed(other, keys, lambda name, split: drawn(of(name, split), options))
    publish(
        options.output,
        "real_judge",
        tables(found, lines.read(options.output, other.name)),
        sorted(lines.distinct(found, "split")),
    )


if __name__ == "__main__":
    main()
