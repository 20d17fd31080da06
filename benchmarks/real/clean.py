"""Accuracy and ranking of `labels.clean` on features, beside scikit-learn.

python -m benchmarks.real.clean [--sets NAME ...] [--rows NAME ...] [--seeds 3] [--size 4000] [--data FOLDER]
                                [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Each row sees the same noisy labels, at most 4,000. Clean labels choose nothing. Logistic regression and the
discriminant of scikit-learn get their strength by five folds of noisy labels. "Balanced accuracy" is the mean accuracy
of the true classes. "clean, keep" trains on all labels. "planted" sets are two normal classes, one of them rare, whose
labels are correct or flipped.
"""

import re
import time
import warnings

import keras
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from benchmarks.lib import experiments, lines
from benchmarks.real import data, features, plain
from keras_het.labels import clean, find_issues

DECIDED = (  # sets that decided how `clean` chooses between its two classifiers
    "LabelMe",
    "TREC",
    "CIFAR-10N worst",
    "CIFAR-10N aggregate",
    "youtube",
    "Hausa",
    "Sentiment",
    "msrc",
    "sms",
    "fer",
)
PLANTED = {
    f"planted, {rate:.0%} rare" + flips * ", flips": (rate, flips) for rate in (0.03, 0.1, 0.2) for flips in (0, 1)
}
STRENGTHS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0)
SHRINKAGES = (0.9, 0.7, 0.5)
FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)
FLAGS = ("disagreements", "issues")
FIRST = 100  # labels of a ranking that a person looks at


def planted(rate, flips, seed, size=1000):
    """Returns features and labels of two normal classes, one of them rare, and 10,000 examples with true classes."""
    rng = np.random.default_rng([seed, 60])
    true = (rng.random(size + 10_000) < rate).astype(int)
    x = rng.normal(size=(len(true), 10))
    x[:, 0] += 1.5 * true
    labels = np.where(flips * rng.random(size) < 0.9, true[:size], 1 - true[:size])
    return x[:size], labels, true[:size], x[size:], true[size:]


def task(options, name, seed):
    """Returns features and noisy labels of the training examples, their truth, and features and truth of the test."""
    if name in PLANTED:
        return planted(*PLANTED[name], seed)
    dataset = features.of(name, options.data, options.cache, seed)
    count = min(options.size, int(0.9 * len(dataset.labels)))
    picked = np.random.default_rng([seed, 4]).permutation(len(dataset.labels))[:count]
    x, queries = plain.standardized(dataset.x[picked].astype("float32"), dataset.x_test.astype("float32"))
    return x, dataset.labels[picked].astype(int), dataset.truth[picked], queries, dataset.truth_test


def search(model, name, values, x, y):
    """Returns a model whose parameter has the best noisy accuracy in five folds."""
    return GridSearchCV(model, {name: values}, cv=FOLDS).fit(x, y).best_estimator_


def logistic_regression(x, y, seed):
    """Returns logistic regression with C by five folds."""
    return search(LogisticRegression(max_iter=300, tol=1e-3), "C", STRENGTHS, x, y)


def linear_discriminant(x, y, seed):
    """Returns scikit-learn's discriminant with equal priors and the shrinkage by five folds."""
    priors = np.full(len(np.unique(y)), 1.0 / len(np.unique(y)))
    return search(LinearDiscriminantAnalysis(solver="lsqr", priors=priors), "shrinkage", SHRINKAGES, x, y)


PLAIN = {
    "logistic regression": logistic_regression,
    "linear discriminant": linear_discriminant,
    "nearest class mean": lambda x, y, seed: NearestCentroid().fit(x, y),
    "ten neighbours": lambda x, y, seed: KNeighborsClassifier(plain.NEIGHBOURS, metric="cosine").fit(x, y),
}
BOTH = ("logistic regression", "linear discriminant")
ROWS = ("clean", "clean, keep", *PLAIN)


def cleaned(x, y, truth, queries, seed, action):
    """Returns the classes of the test examples by `clean`, and what it found and printed."""
    result = clean(None, x, y, action=action, seed=seed, verbose=0)
    wrong, p, issues = y != truth, result.probabilities, result.issues
    orders = {each: find_issues(p, result.data.labels, ranking=each).index for each in ("confidence", "transition")}
    measured = {"kind": re.match(r"\w+ \w+", result.classifier)[0].lower(), "action": result.action or "keep"}
    for name, order in orders.items():
        score = np.argsort(order)  # the place of each label
        measured[f"AP, {name}"] = float(average_precision_score(wrong, -score))
        measured[f"first, {name}"] = int(wrong[order[:FIRST]].sum())
    for name, mask in (("disagreements", issues.disagrees), ("issues", issues.is_issue)):
        named = wrong[issues.index[mask]]
        measured |= {name: int(mask.sum()), f"precision, {name}": float(named.mean()) if len(named) else 1.0}
        measured[f"recall, {name}"] = float(named.sum() / max(1, wrong.sum()))
    return result.classes[result.model.predict(queries, batch_size=2048, verbose=0).argmax(axis=1)], measured


def measured(options, name, seed, row):
    """Returns the line of a set, seed and row."""
    x, y, truth, queries, truth_test = task(options, name, seed)
    start, others = time.process_time(), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if row.startswith("clean"):
            try:
                predicted, others = cleaned(x, y, truth, queries, seed, "keep" if "keep" in row else None)
            except ValueError as refusal:  # a model that learned nothing
                yield {"refused": str(refusal), "wrong": float(np.mean(y != truth))}
                return
            keras.utils.clear_session(free_memory=False)
        else:
            model = PLAIN[row](x, y, seed)
            predicted = model.predict(queries)
            if hasattr(model, "predict_proba"):
                p = cross_val_predict(
                    model, x, y, cv=StratifiedKFold(5, shuffle=True, random_state=0), method="predict_proba"
                )
                score = p[np.arange(len(y)), np.searchsorted(np.unique(y), y)]
                others["AP, confidence"] = float(average_precision_score(y != truth, -score))
    seconds = time.process_time() - start
    line = {
        "accuracy": float(np.mean(predicted == truth_test)),
        "processor": seconds,
        "wrong": float(np.mean(y != truth)),
    }
    yield line | {"balanced": float(balanced_accuracy_score(truth_test, predicted))} | others


def table_of(records, key, rows=ROWS, digits=3):
    """Returns the means of a measure, a row for each set."""
    table = [["set", *rows]]
    for name in lines.distinct(records, "set"):
        table.append([name, *(_mean(lines.select(records, set=name, row=row), key, digits) for row in rows)])
    return table


def _mean(own, key, digits):
    """Returns the mean of a measure, and for how many lines `clean` refused the labels."""
    refused = sum("refused" in line for line in own)
    text = lines.with_error([line[key] for line in own if key in line], digits)
    return f"{text} (refused {refused} of {len(own)})".strip() if refused else text


def differences(records, key):
    """Returns the points of `clean` over the better of logistic regression and the discriminant, by the test."""
    table = [["set", "better of the two", "clean over it, points"]]
    for name in lines.distinct(records, "set"):
        own = {
            row: [line for line in lines.select(records, set=name, row=row) if key in line] for row in ("clean", *BOTH)
        }
        if not all(own.values()):  # a run of some rows alone
            continue
        best = max(BOTH, key=lambda row: np.mean([line[key] for line in own[row]]))
        table.append([name, best, lines.gain(100 * lines.paired(own["clean"], own[best], key), 1)])
    return table


def found(records):
    """Returns what `clean` chose, and disagreements and issues with precision and recall."""
    titles = (f"{part}{measure}" for part in FLAGS for measure in (": fraction", ": precision", ": recall"))
    table = [["set", "wrong", "chosen", "trained on", *titles]]
    for name in lines.distinct(records, "set"):
        own = [line for line in lines.select(records, set=name, row="clean") if "refused" not in line]
        if not own:
            continue
        cells = [name, f"{np.mean([line['wrong'] for line in own]):.2f}", _counts(own, "kind"), _counts(own, "action")]
        means = np.mean([[*flagged(line)] for line in own], axis=0)
        table.append([*cells, *("" if np.isnan(mean) else f"{mean:.2f}" for mean in means)])
    return table


def flagged(line):
    """Returns the fraction of the labels that are flagged, precision and recall, of disagreements and of issues."""
    for part in FLAGS:
        precision, recall = line[f"precision, {part}"], line[f"recall, {part}"]
        # precision * flagged = recall * wrong
        yield from (line["wrong"] * recall / precision if precision else np.nan, precision, recall)


def _counts(own, key):
    values = [line[key] for line in own]
    return "; ".join(f"{value} {values.count(value)}" for value in dict.fromkeys(values))


def rankings(records):
    """Returns the average precision of both rankings, and the label errors among the first 100."""
    keys = ("AP, confidence", "AP, transition", "first, confidence", "first, transition")
    table = [["set", *keys]]
    for name in lines.distinct(records, "set"):
        own = lines.select(records, set=name, row="clean")
        digits = (3, 3, 0, 0)
        cells = zip(keys, digits, strict=True)
        table.append([name, *(lines.with_error([line[key] for line in own], digit) for key, digit in cells)])
    return table


def tables(records):
    """Returns the tables of the sets that decided, of all others, and of the planted ones."""
    parts = {
        "sets that decided": [line for line in records if line["set"] in DECIDED],
        "sets that had no say": [line for line in records if line["set"] in data.SETS and line["set"] not in DECIDED],
        "planted": [line for line in records if line["set"] in PLANTED],
    }
    made = {}
    for title, own in ((title, own) for title, own in parts.items() if own):
        made[f"accuracy, {title}"] = table_of(own, "accuracy")
        made[f"balanced accuracy, {title}"] = table_of(own, "balanced")
        made[f"points of accuracy, {title}"] = differences(own, "accuracy")
        made[f"points of balanced accuracy, {title}"] = differences(own, "balanced")
    real = [line for line in records if line["set"] in data.SETS]
    made["average precision"] = table_of(real, "AP, confidence", ("clean", *BOTH))
    if any(line["row"] == "clean" for line in records):
        made |= {"what clean found": found(records), "rankings": rankings(real)}
    made["processor seconds"] = table_of(records, "processor", digits=1)
    return made


def main():
    options = {"sets": (*data.SETS, *PLANTED), "rows": ROWS, "seeds": 3, "size": 4000} | features.FOLDERS
    quick = {"size": 500, "seeds": 1}
    experiments.run(__doc__, "real_clean", measured, tables, options, quick, settings=("size",))


if __name__ == "__main__":
    main()
