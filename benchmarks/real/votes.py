"""What is made of the votes of several annotators: majority, Dawid-Skene; and what is done to them beforehand.

`task_of(options, "LabelMe", "10 spammers", seed)` is a set of `benchmarks.real.data` whose votes were changed.
"""

from typing import NamedTuple

import numpy as np

from benchmarks.real import data, features, plain
from keras_het import label_noise

ABSTAIN = "abstaining is a label"
PLAN = {  # by set, what is done to the votes
    "LabelMe": ("", "one vote each", "two votes each", "nobody below 20 votes", "10 spammers", "30 spammers"),
    "Sentiment": ("", "one vote each", "50 spammers"),
    "TREC": ("", ABSTAIN),
    "youtube": ("", ABSTAIN),
}


class Task(NamedTuple):
    """Standardised examples with their votes `(N, M)`, -1 where there is none or K for one who abstains; the truth."""

    x: np.ndarray
    votes: np.ndarray
    truth: np.ndarray
    x_test: np.ndarray
    truth_test: np.ndarray
    units: int
    spammers: np.ndarray


def task_of(options, name, change, seed):
    """The `Task` of a set whose votes were changed; without the examples that have no vote then."""
    found, rng = features.of(name, options.data, options.cache, seed), np.random.default_rng([seed, 5])
    votes, spammers = changed(found.votes.astype(int), change, found.units, rng)
    kept = np.flatnonzero(((votes >= 0) & (votes < found.units)).any(axis=1))[: options.size]
    x, x_test = plain.standardized(found.x[kept], found.x_test)
    return Task(x, votes[kept], found.truth[kept].astype(int), x_test, found.truth_test, found.units, spammers)


def changed(votes, change, units, rng):
    """Votes after a change, and which annotators say anything then, `(M,)`."""
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


def of_crowdkit(votes, units, name="DawidSkene", **options):
    """Probabilities of the classes by an aggregation of crowd-kit, `(N, K)`; None where it is not installed."""
    try:
        import crowdkit.aggregation
    except ImportError:
        return None
    import pandas as pd

    task, worker = np.nonzero(votes >= 0)
    answers = pd.DataFrame({"task": task, "worker": worker, "label": votes[task, worker]})
    made = getattr(crowdkit.aggregation, name)(**options)
    if not hasattr(made, "fit_predict_proba"):
        return np.eye(units)[made.fit_predict(answers).reindex(range(len(votes)), fill_value=0).to_numpy()]
    found = made.fit_predict_proba(answers)
    return found.reindex(index=range(len(votes)), columns=range(units), fill_value=0.0).to_numpy()


def of_snorkel(votes, units):
    """Probabilities by Snorkel's label model, `(N, K)`, with its defaults; None where it is not installed."""
    try:
        from snorkel.labeling.model import LabelModel
    except ImportError:
        return None
    made = LabelModel(cardinality=units, verbose=False)
    made.fit(votes, seed=0, progress_bar=False)
    return made.predict_proba(votes)


def by_dawid_skene(task):
    """Probabilities of the true classes, `(N, K)`, and T of each annotator, `(M, K, K)` or with those who abstain."""
    if task.votes.max() < task.units:
        found = label_noise.dawid_skene(task.votes, task.units)
        return found.probabilities, found.transitions
    return with_abstaining(task.votes, task.units)


def with_abstaining(votes, units, iterations=30):
    """The same EM where abstaining is a label, K, but no class; `dawid_skene` has as many labels as classes."""
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
    "shares of the votes": lambda task, rng: label_noise.majority_vote(task.votes, task.units, shares=True),
    "Dawid-Skene": lambda task, rng: by_dawid_skene(task)[0],
    "crowd-kit's Dawid-Skene": lambda task, rng: of_crowdkit(task.votes, task.units),
    "crowd-kit's GLAD": lambda task, rng: of_crowdkit(task.votes, task.units, "GLAD"),
    "crowd-kit's M-MSR": lambda task, rng: of_crowdkit(task.votes, task.units, "MMSR"),
    "Snorkel's label model": lambda task, rng: of_snorkel(task.votes, task.units),
    "true labels": lambda task, rng: np.eye(task.units)[task.truth],
}
