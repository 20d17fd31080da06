"""Label errors among the first 100, 300 or 1,000 labels that each rule tells a person to check.

python -m benchmarks.real.next_labels [--sets NAME ...] [--seeds 5] [--size 4000] [--data FOLDER] [--cache FOLDER]
                                      [--output FOLDER] [--quick] [--render]

A seed draws at most `size` labelled examples. The label of several votes is their majority. The probabilities come from
logistic regression out of sample, by five folds. A rule orders all labels by them, or by the features if its name says
so. The person who checks a label sees the true class.

There are two measures: the number of label errors among the checked labels, and the true accuracy, on the test
examples, of a logistic regression that is trained again with the verified classes. C is chosen once for each seed, by
noisy validation labels before any check, and is the same for all rules.
"""

import functools
import itertools

import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import features, plain
from benchmarks.real.issues import folds_of

SETS = ("CIFAR-10N worst", "CIFAR-10N aggregate", "CIFAR-100N", "TREC", "LabelMe")
LOOKS, FOLDS, LEAST = (100, 300, 1000), 5, 1e-6
BEST = "self-confidence"  # reference of the other rules
NONE, ALL = "none", "every label"


class Labels:
    """Labels, and the values by which rules order them.

    Args:
        x: features, standardized.
        y: labels.
        p: probabilities out of sample, `(N, K)`.
        seed: integer for the random order.
    """

    def __init__(self, x, y, p, seed):
        self.x, self.y, self.p, self.seed = x, y, p, seed

    @property
    def label_probability(self):
        """Probability of the label."""
        return self.p[np.arange(len(self.y)), self.y]

    @property
    def other(self):
        """Largest probability of another class."""
        p = self.p.copy()
        p[np.arange(len(self.y)), self.y] = -1.0
        return p.max(axis=1)

    @property
    def entropy(self):
        """Entropy of the probabilities, in nats."""
        return -(self.p * np.log(self.p)).sum(axis=1)


def at_random(labels):
    """Returns random scores."""
    return np.random.default_rng([labels.seed, 48]).random(len(labels.y))


def class_mean(labels):
    """Returns the mean probability of the label, over the examples with the same label."""
    sums = np.bincount(labels.y, labels.label_probability, labels.p.shape[1])
    return (sums / np.maximum(np.bincount(labels.y, minlength=len(sums)), 1))[labels.y]


def issues_first(issues):
    """Returns the rank of each label in the order of a `LabelIssues`, its issues first."""
    order = issues.index[np.argsort(~issues.is_issue, kind="stable")]
    place = np.empty(len(order))
    place[order] = np.arange(len(order))
    return place


def issue_order(labels):
    """Returns the order of `find_issues`."""
    from keras_het.labels import find_issues

    return issues_first(find_issues(labels.p, labels.y))


def result_order(labels):
    """Returns the order of the issues of `choose` and `clean`, unless they are few."""
    from keras_het.labels.issues import all_issues

    return issues_first(all_issues(labels.p, labels.y))


def classes(labels, transition):
    """Returns probabilities q of the true classes, `(N, K)`, with q T close to p, and T without zeros."""
    transition = np.maximum(transition, LEAST) / np.maximum(transition, LEAST).sum(axis=1, keepdims=True)
    q = labels.p.copy()
    for _ in range(100):  # Richardson and Lucy: the likelihood of p never falls
        q = q * (labels.p / (q @ transition) @ transition.T)
    return q, transition


def posterior(labels, transition):
    """Returns the probability that the label is the class."""
    q, transition = classes(labels, transition)
    own = q[np.arange(len(q)), labels.y] * np.diag(transition)[labels.y]
    return own / np.einsum("nk,nk->n", q, transition.T[labels.y])


def diagnosed(labels):
    """Returns T of `diagnose`."""
    from keras_het.labels.diagnosis import diagnose

    return diagnose(labels.p, labels.y).transition


def joint_transition(labels):
    """Returns T of the confident joint."""
    from keras_het.labels.estimation import confident_counts

    counts = confident_counts(labels.y, labels.p)
    return counts / counts.sum(axis=1, keepdims=True)


def cleaning(labels, q):
    """Returns minus the cross-entropy plus the entropy, by probabilities q."""
    q = np.maximum(q, LEAST)
    return np.log(q[np.arange(len(q)), labels.y]) - (q * np.log(q)).sum(axis=1)


def package_score(labels, p):
    """Returns the score of `labels.next_labels`."""
    from keras_het.labels import next_labels

    result = next_labels(p, labels.y, len(labels.y))
    score = np.empty(len(labels.y))
    score[result.index] = result.score
    return score


def discriminant(labels):
    """Returns out-of-sample probabilities of a linear discriminant."""
    from keras_het.labels import clean

    p = clean(None, labels.x, labels.y, verbose=0).probabilities.astype("float64")
    return p / p.sum(axis=1, keepdims=True)


def neighbours(labels):
    """Returns the fraction of ten neighbours with the same label."""
    votes = plain.neighbour_votes(labels.x, labels.y, labels.p.shape[1])
    return votes[np.arange(len(labels.y)), labels.y] + 1e-9 * labels.label_probability  # the model breaks ties


RULES = {  # scores by rule, of a `Labels`: the lower, the sooner a label is looked at
    "random": at_random,
    BEST: lambda labels: labels.label_probability,
    "margin": lambda labels: labels.label_probability - labels.other,
    "log margin": lambda labels: np.log(labels.label_probability) - np.log(labels.other),
    "self-confidence, less its class": lambda labels: labels.label_probability - class_mean(labels),
    "self-confidence, over its class": lambda labels: labels.label_probability / class_mean(labels),
    "find_issues": issue_order,
    "issues of choose": result_order,
    "posterior, T of diagnose_noise": lambda labels: posterior(labels, diagnosed(labels)),
    "posterior, T of the confident joint": lambda labels: posterior(labels, joint_transition(labels)),
    "next_labels": lambda labels: package_score(labels, labels.p),
    "cross-entropy - entropy": lambda labels: cleaning(labels, labels.p),
    "the same by T of diagnose_noise": lambda labels: cleaning(labels, classes(labels, diagnosed(labels))[0]),
    "entropy": lambda labels: -labels.entropy,
    "features: ten neighbours": neighbours,
    "features: next_labels": lambda labels: package_score(labels, discriminant(labels)),
}


def fitted(x, y, c):
    """Returns a trained logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, max_iter=300).fit(x, y)


def out_of_sample(x, y, units, c, seed):
    """Returns probabilities of each example by the other folds, `(N, K)`."""
    fold, p = folds_of(len(y), seed), np.full((len(y), units), LEAST)
    for held in (fold == place for place in range(FOLDS)):
        model = fitted(x[~held], y[~held], c)
        p[np.ix_(held, model.classes_)] = np.maximum(model.predict_proba(x[held]), LEAST)
    return p / p.sum(axis=1, keepdims=True)


class Task:
    """Draw of a set: its labels, and the accuracy of a model after some labels are checked."""

    def __init__(self, name, seed, options):
        dataset = features.of(name, options.data, options.cache, seed)
        there = (
            np.flatnonzero((dataset.votes >= 0).any(axis=1)) if dataset.votes is not None else np.arange(len(dataset.x))
        )
        chosen = np.random.default_rng([seed, 4]).permutation(there)[: options.size]
        x, self.x_test = plain.standardized(dataset.x[chosen], dataset.x_test)
        y, self.truth_test = dataset.labels[chosen].astype(int), dataset.truth_test
        self.truth = dataset.truth[chosen].astype(int)
        train, validation = plain.split(y, seed)
        _, self.c = plain.logistic_regression(x[train], y[train], x[validation], y[validation])
        self.labels = Labels(x, y, out_of_sample(x, y, dataset.units, self.c, seed), seed)

    def line(self, seen):
        """Returns the line after these labels were checked."""
        wrong, labels = self.labels.y != self.truth, self.labels.y.copy()
        labels[seen] = self.truth[seen]
        accuracy = np.mean(fitted(self.labels.x, labels, self.c).predict(self.x_test) == self.truth_test)
        known = {"labels": len(labels), "wrong": int(wrong.sum()), "C": self.c}
        return {"looks": len(seen), "errors": int(wrong[seen].sum()), "accuracy": float(accuracy), **known}


def measured(task, rule):
    """Returns the lines of a rule: the errors among its first labels, and the accuracy after that."""
    if rule in (NONE, ALL):
        yield task.line(np.arange(len(task.truth) if rule == ALL else 0))
        return
    order = np.argsort(RULES[rule](task.labels), kind="stable")
    for looks in (looks for looks in LOOKS if looks < len(order)):
        yield task.line(order[:looks])


def set_table(records, measure, looks, digits):
    """Returns means over the seeds with standard errors: a row for each rule, a column for each set."""
    names = [name for name in SETS if lines.select(records, set=name)]
    rows = [["rule", *names]]
    for rule in (*RULES, *((NONE, ALL) if measure == "accuracy" else ())):
        own = [line for line in lines.select(records, rule=rule) if rule in (NONE, ALL) or line["looks"] == looks]
        values = ([line[measure] for line in lines.select(own, set=name)] for name in names)
        rows.append([rule, *(lines.with_error(each, digits) for each in values)])
    return rows


def over(records, measure, scale, digits):
    """Returns the mean difference from `BEST` over sets, by seed: a row for each rule, a column for each number."""
    rows = [["rule", *(f"{looks} looks" for looks in LOOKS)]]
    for rule in (rule for rule in RULES if rule != BEST):
        gains = []
        for looks in LOOKS:
            own, best = (lines.select(records, rule=each, looks=looks) for each in (rule, BEST))
            beside = {(line["set"], line["seed"]): line[measure] for line in best}
            seeds = lines.distinct(own, "seed")
            own_lines = (lines.select(own, seed=seed) for seed in seeds)
            gains.append(
                [
                    np.mean([scale * (line[measure] - beside[line["set"], line["seed"]]) for line in part])
                    for part in own_lines
                ]
            )
        rows.append([rule, *(lines.with_error(gain, digits, "+") for gain in gains)])
    return rows


def tables(records):
    """Returns errors and accuracy by set, and both relative to self-confidence."""
    per_set = {
        f"{title} {looks} looks": set_table(records, measure, looks, digits)
        for measure, title, digits in (("errors", "wrong labels among", 0), ("accuracy", "test accuracy after", 3))
        for looks in LOOKS
    }
    return per_set | {
        f"wrong labels found, over {BEST}, mean of the sets": over(records, "errors", 1, 1),
        f"points of test accuracy, over {BEST}, mean of the sets": over(records, "accuracy", 100, 2),
    }


def main():
    """Runs the missing rules, and makes the tables."""
    options = features.experiment(__doc__, SETS, {"size": 500, "seeds": 1}, seeds=5, size=4000).parse_args()
    cells = itertools.product(range(options.seeds), options.sets, (NONE, *RULES, ALL))
    keys = [{"set": name, "seed": seed, "rule": rule} for seed, name, rule in cells]
    task = functools.lru_cache(1)(lambda name, seed: Task(name, seed, options))

    def make(name, seed, rule):
        return measured(task(name, seed), rule)

    records = features.records(options, "real_next_labels", keys, make, size=options.size)
    publish(options.output, "real_next_labels", tables(records), sorted(lines.distinct(records, "seed")))


if __name__ == "__main__":
    main()
