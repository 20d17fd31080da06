"""Classes from the votes of several annotators, by majority and Dawid-Skene, also with planted spammers.

python -m benchmarks.real.votes [--seeds 5] [--data FOLDER] [--output FOLDER] [--quick] [--render]

`task_of(options, "LabelMe", "10 spammers", seed)` is a set of `benchmarks.real.data` with changed votes. The command
needs no network. It measures the fraction of correct classes by the majority (a tie is drawn), by `aggregate`, and with
abstaining as a label. It also has the mean probability of the most probable class, and for `labels.annotators` how
often the interval of the agreement with the others contains the accuracy by gold labels.
"""

import functools
from typing import NamedTuple

import numpy as np

from benchmarks.lib import experiments, lines
from benchmarks.real import data, features, plain
from keras_het.labels import aggregate, annotators

ABSTAIN = "abstaining is a label"
PLAN = {  # by set, what is done to the votes
    "LabelMe": ("", "one vote each", "two votes each", "nobody below 20 votes", "10 spammers", "30 spammers"),
    "Sentiment": ("", "one vote each", "50 spammers"),
    "TREC": ("", ABSTAIN),
    "youtube": ("", ABSTAIN),
}


class Task(NamedTuple):
    """Standardised examples with their votes `(N, M)`, -1 if missing or K for abstaining, and the truth."""

    x: np.ndarray
    votes: np.ndarray
    truth: np.ndarray
    x_test: np.ndarray
    truth_test: np.ndarray
    units: int
    spammers: np.ndarray


def task_of(options, name, change, seed):
    """Returns the `Task` of a set with changed votes, without the examples that have no vote then."""
    dataset, rng = features.of(name, options.data, options.cache, seed), np.random.default_rng([seed, 5])
    votes, spammers = changed(dataset.votes.astype(int), change, dataset.units, rng)
    kept = np.flatnonzero(((votes >= 0) & (votes < dataset.units)).any(axis=1))[: options.size]
    x, x_test = plain.standardized(dataset.x[kept], dataset.x_test)
    return Task(x, votes[kept], dataset.truth[kept].astype(int), x_test, dataset.truth_test, dataset.units, spammers)


def changed(votes, change, units, rng):
    """Returns votes after a change, and which annotators still vote, `(M,)`."""
    spammers = np.zeros(votes.shape[1], bool)
    if change in ("one vote each", "two votes each"):
        order = np.where(votes >= 0, rng.random(votes.shape), 2.0).argsort(axis=1).argsort(axis=1)
        votes = np.where(order < (1 if change.startswith("one") else 2), votes, -1)
    elif change == "nobody below 20 votes":
        votes = np.where((votes >= 0).sum(axis=0) >= 20, votes, -1)
    elif change.endswith("spammers"):
        spammers[rng.permutation(len(spammers))[: int(change.split()[0])]] = True
        votes = np.where(spammers & (votes >= 0), rng.integers(units, size=votes.shape), votes)
    elif change == ABSTAIN:
        votes = np.where(votes < 0, units, votes)
    return votes, spammers


def crowdkit_probabilities(votes, units, name="DawidSkene", **options):
    """Returns class probabilities by an aggregation of crowd-kit, `(N, K)`, or None if it is not installed."""
    try:
        import crowdkit.aggregation
    except ImportError:
        return None
    import pandas as pd

    task, worker = np.nonzero(votes >= 0)
    answers = pd.DataFrame({"task": task, "worker": worker, "label": votes[task, worker]})
    made = getattr(crowdkit.aggregation, name)(**options)
    if not hasattr(made, "fit_predict_proba"):
        try:
            result = made.fit_predict(answers)
        except ValueError:  # M-MSR, of rules that say one class each
            return None
        return np.eye(units)[result.reindex(range(len(votes)), fill_value=0).to_numpy()]
    result = made.fit_predict_proba(answers)
    return result.reindex(index=range(len(votes)), columns=range(units), fill_value=0.0).to_numpy()


def snorkel_probabilities(votes, units):
    """Returns probabilities by Snorkel's label model with its defaults, `(N, K)`, or None if it is not installed."""
    try:
        from snorkel.labeling.model import LabelModel
    except ImportError:
        return None
    made = LabelModel(cardinality=units, verbose=False)
    made.fit(votes, seed=0, progress_bar=False)
    return made.predict_proba(votes)


def dawid_skene(task):
    """Returns probabilities of the true classes, `(N, K)`, and T of each annotator, also with abstaining."""
    if task.votes.max() < task.units:
        estimate = aggregate(task.votes, task.units)
        return estimate.probabilities, estimate.transitions
    return with_abstaining(task.votes, task.units)


def with_abstaining(votes, units, iterations=30):
    """Returns the same with abstaining as a label K that is no class, because `aggregate` has only classes."""
    said = np.eye(units + 1)[votes]
    p = said[:, :, :units].sum(axis=1)
    p /= p.sum(axis=1, keepdims=True)
    for _ in range(iterations):
        counts = np.einsum("nmj,ni->mij", said, p) + 0.01 / (units + 1)
        transitions = counts / counts.sum(axis=2, keepdims=True)
        log_p = np.log(p.mean(axis=0) + 1e-12) + np.einsum("nmj,mij->ni", said, np.log(transitions))
        p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
    uniform = np.full((len(transitions), 1, units + 1), 1.0 / (units + 1))  # of the class that no example has
    return p, np.concatenate([transitions, uniform], axis=1)


TARGETS = {  # what is made of the votes: functions of the task and a generator, `(N, K)`
    "majority": lambda task, rng: np.eye(task.units)[data.majority(task.votes, task.units, rng)],
    "shares of the votes": lambda task, rng: aggregate(task.votes, task.units, "majority").probabilities,
    "Dawid-Skene": lambda task, rng: dawid_skene(task)[0],
    "crowd-kit's Dawid-Skene": lambda task, rng: crowdkit_probabilities(task.votes, task.units),
    "crowd-kit's GLAD": lambda task, rng: crowdkit_probabilities(task.votes, task.units, "GLAD"),
    "crowd-kit's M-MSR": lambda task, rng: crowdkit_probabilities(task.votes, task.units, "MMSR"),
    "Snorkel's label model": lambda task, rng: snorkel_probabilities(task.votes, task.units),
    "true labels": lambda task, rng: np.eye(task.units)[task.truth],
}


def gold_accuracies(votes, truth, prior):
    """Returns sum_i prior_i p(label i | true class i) for each annotator, over classes with labels, or nan."""
    class_terms = []
    for i in range(len(prior)):
        is_label = (votes >= 0) & (truth == i)[:, None]
        class_terms.append(
            ((votes == i) & is_label).sum(axis=0) / np.where(is_label.any(axis=0), is_label.sum(axis=0), np.nan)
        )
    shares, weights = np.array(class_terms), prior[:, None] * ~np.isnan(class_terms)
    return np.nansum(shares * weights, axis=0) / np.where(weights.any(axis=0), weights.sum(axis=0), np.nan)


COLUMNS = ("right by majority", "right by Dawid-Skene", "mean probability", "inside")
read = functools.lru_cache(1)(data.read)


def measured(options, name, change, seed):
    """Yields the line of a set with changed votes."""
    figures = scores(read(name, options.data), change, seed)
    yield dict(zip(COLUMNS, map(float, figures), strict=True))


def scores(dataset, change, seed):
    """Returns the values of `COLUMNS`."""
    rng, units = np.random.default_rng([seed, 5]), dataset.units
    votes, spammers = changed(dataset.votes.astype(int), change, units, rng)
    kept = ((votes >= 0) & (votes < units)).any(axis=1)
    votes, truth = votes[kept], dataset.truth[kept]
    if change == ABSTAIN:
        majority, (p, _) = data.majority(np.where(votes == units, -1, votes), units, rng), with_abstaining(votes, units)
        return [np.mean(majority == truth), np.mean(p.argmax(axis=1) == truth), p.max(axis=1).mean(), np.nan]
    fitted = aggregate(votes, units)
    if fitted.transitions is None:  # the majority, of rules that name one class each
        return [np.mean(data.majority(votes, units, rng) == truth), np.mean(fitted.labels == truth), *[np.nan] * 2]
    each = annotators(fitted, votes).annotators
    gold = gold_accuracies(votes, truth, fitted.prior)
    pairs = [(a.interval, g) for a, g in zip(each, gold, strict=True) if not np.isnan(a.agreement_with_others)]
    inside = np.mean([low <= g <= high for (low, high), g in pairs]) if pairs and not spammers.any() else np.nan
    right = [data.majority(votes, units, rng), fitted.labels]
    return [*(np.mean(y == truth) for y in right), fitted.probabilities.max(axis=1).mean(), inside]


def keys(options):
    """Returns the keys of all runs."""
    changes = [(name, change) for name in PLAN for change in PLAN[name]]
    return [{"set": name, "change": change, "seed": seed} for name, change in changes for seed in range(options.seeds)]


def tables(records):
    """Returns the only table."""
    table = [["set", "votes", *COLUMNS]]
    for name in lines.distinct(records, "set"):
        _, *rows = lines.table(lines.select(records, set=name), "change", COLUMNS)
        table += [[name, change or "all", *cells] for change, *cells in rows]
    return {"what is made of votes": table}


def main():
    options = {"seeds": 5} | features.FOLDERS
    experiments.run(__doc__, "real_votes", measured, tables, options, {"seeds": 1}, keys=keys)


if __name__ == "__main__":
    main()
