"""Tables of results on labels of people and rules, and of the methods that were compared."""

import re

from benchmarks.lib.views.rows import bold, columns_of, dicts, in_points, value

PARTS = {"sets that decided": "decided", "sets that had no say": "no say", "planted": "planted"}
AUDITS = {"find_label_issues": "`find_issues`", "argmax is not the label": "every label that is not the top class"}
METHODS = {  # rows of real_clean, in words
    "logistic regression": "logistic regression",
    "linear discriminant": "discriminant of scikit-learn",
    "clean": "`clean`",
}
HEADS = {  # numbers of labels
    "CIFAR-10N worst": (2_000, 5_000, 10_000, 18_000, 50_000),
    "CIFAR-100N": (5_000, 45_000),
    "CIFAR-10N random1": (5_000, 18_000),
    "CIFAR-10N aggregate": (5_000, 18_000),
    "Fashion-MNIST-H": (5_000, 18_000),
}
JUDGES = ("verified alone", "verify_accuracy")  # columns of real_judge
CROWDS = {  # rows of real_annotators, in words
    "clean, votes": "`labels.clean(None, x, votes=votes)`",
    "clean, majority": "`labels.clean(None, x, y)` of the majority",
    "majority + logistic regression": "majority, logistic regression",
    "Dawid-Skene + logistic regression": "Dawid-Skene, logistic regression",
    "crowd-kit's GLAD + logistic regression": "GLAD (crowd-kit), logistic regression",
    "Snorkel's label model + logistic regression": "label model (Snorkel), logistic regression",
    "majority + Dense": "majority, network",
    "a T for each, from Dawid-Skene": "network with a matrix for each annotator",
    "true labels + logistic regression": "correct labels, logistic regression",
}
ELSEWHERE = {  # data of the choice that did not decide its rule, in words
    "table, 30% of one class": "table of two classes, 30% of one class labelled as the other",
    "words, 45% of every second": "words of 12 languages, 45% of every second class, one way",
    "MNIST, 40%": "3,000 images of MNIST, 40% look-alike",
    "images, 20%": "drawn images, 20 classes, 20% look-alike",
}


def label_errors(of):
    """Returns the labels of each real set that `clean` disagrees with, its issues, and how many of them are errors."""
    names = ["disagreements", "issues"]
    lines = [
        ["dataset", "label errors", *(f"{title}{more}" for title in names for more in ("", ": precision", ": recall"))]
    ]
    for row in dicts(of("real_clean", "what clean found")):
        if not row["set"].startswith("planted"):
            lines.append([row["set"], row["wrong"], *list(row.values())[4:]])
    return lines


def rankings(of):
    """Returns the average precision of the rankings by three classifiers, and of `ranking="transition"`, by set."""
    by_transition = columns_of(of("real_clean", "rankings"))
    lines = [["dataset", *METHODS.values(), '`clean`, `ranking="transition"`']]
    for row in dicts(of("real_clean", "average precision")):
        cells = (value(row[name]) for name in METHODS)
        lines.append([row["set"], *cells, value(by_transition[row["set"], "AP, transition"])])
    return lines


def audits(of):
    """Returns what two finders flag on test sets that people checked."""
    head = ["data", "flagged by", "flagged", "checked", "label errors", "precision", "recall of known errors"]
    lines, data = [head], ""
    for row in dicts(of("real_verified", "wrong labels of good data sets")):
        data = row["data"].partition(" (")[0] or data
        if row["finder"] in AUDITS:
            lines.append([data, AUDITS[row["finder"]], *list(row.values())[2:]])
    return lines


def real_methods(of):
    """Returns accuracy and balanced accuracy of `clean` and of scikit-learn, a row for each set."""
    wrong = {row["set"]: row["wrong"] for row in dicts(of("real_clean", "what clean found"))}
    measures = ("accuracy", "balanced accuracy")
    titles = (f"{measure}: {words}" for measure in measures for words in METHODS.values())
    lines = [["dataset", "choice of `clean`", "label errors", *titles]]
    for part, words in PARTS.items():
        tables = [{row["set"]: row for row in dicts(of("real_clean", f"{measure}, {part}"))} for measure in measures]
        for name in tables[0]:
            cells = (table[name][row] for table in tables for row in METHODS)
            means = (re.sub(r" \+- [\d.]+", "", cell) for cell in cells)
            lines.append([name, words, wrong.get(name, ""), *means])
    return lines


def real_heads(of):
    """Returns the points of each model over a Dense layer with a tuned temperature, by set and number of labels."""
    lines = [["dataset", "labels", "`Dense`, tuned", *HEAD_COLUMNS.values(), "seeds"]]
    for name, count, rows in _heads(of, "by noisy accuracy"):
        gains = (rows.get(row, {}).get("accuracy - Dense's", "") for row in HEAD_COLUMNS)
        points = (bold(in_points(gain)) if gain else "" for gain in gains)
        lines.append([name, count, rows["Dense"]["accuracy"], *points, rows["full"]["seeds"]])
    return lines


def head_rules(of):
    """Returns what the head adds to Dense if one rule chooses temperature and epoch of both, a column for each rule."""
    rules = ("by noisy accuracy", "by noisy likelihood", "last epoch")
    lines = [["dataset", "labels", *(f"{measure}: {rule}" for measure in ("points", "NLL") for rule in rules)]]
    for parts in zip(*(_heads(of, rule) for rule in rules), strict=True):
        heads = [rows["full"] for _, _, rows in parts]
        points = (bold(in_points(head["accuracy - Dense's"])) for head in heads)
        nll = (bold(_signed(head["nll - Dense's"])) for head in heads)
        lines.append([*parts[0][:2], *points, *nll])
    return lines


def _heads(of, rule):
    """Yields set, number of labels and the rows by head."""
    for name, counts in HEADS.items():
        for count in counts:
            table = dicts(of("real_heads", f"{name}, {count} labels, {rule}"))
            yield name, f"{count:,}", {row["head"]: row for row in table}


HEAD_COLUMNS = {
    "Dense, temperature 1": "`Dense`, temperature 1",
    "logistic regression": "logistic regression",
    "clean": "`labels.clean`",
    "full": "head",
}


def people_confuse(of):
    """Returns rank correlations of the pairs that people confuse with what Dense and the full head say of pairs."""
    lines = [["dataset", "labels", "`p.T @ p` of `Dense`", "`p.T @ p` of the head", "covariance of the head"]]
    for name, count, rows in _heads(of, "by noisy accuracy"):
        cells = [rows[row]["pairs by p"] for row in ("Dense", "full")] + [rows["full"]["pairs by covariance"]]
        lines.append([name, count, *cells])
    return lines


def _signed(cell):
    """Returns a mean with its sign, and the standard error."""
    mean, error = cell.split(" +- ")
    return f"{float(mean):+.3f} +- {error}"


def crowds(of):
    """Returns the accuracy of models trained on the votes of several annotators, a column for each set."""
    sets = ("LabelMe", "Sentiment", "TREC", "youtube")
    columns = [{row["trained on"]: row["accuracy"] for row in dicts(of("real_annotators", name))} for name in sets]
    return [["labels and model", *sets], *([words, *(c[name] for c in columns)] for name, words in CROWDS.items())]


def judge(of):
    """Returns how far labels, verified labels and `verify_accuracy` are from the accuracy, for the largest sample."""
    title = "how often 95% intervals hold the true accuracy, and the error in points"
    widths = {(row["set"], row["verified"]): row for row in dicts(of("real_judge", "half width in points"))}
    largest = {row["set"]: row for row in dicts(of("real_judge", title)) if not row["set"].startswith("planted")}
    half_widths = ("half width, verified alone", "half width, `verify_accuracy`")
    lines = [["dataset", "verified", "accuracy", "error of noisy accuracy", *half_widths, "holds"]]
    for name, row in largest.items():
        width = widths[name, row["verified"]]
        bias = row["labels agree"].partition(" (")[2].rstrip(")")
        holds = f"{100 * float(row['verify_accuracy'].split(' ')[0]):.0f}%"
        lines.append([name, row["verified"], row["true accuracy"], bias, *(width[column] for column in JUDGES), holds])
    return lines


def choice(of):
    """Returns the points of `choose` over early stopping, on seven kinds of noise and on other data."""
    lines = [["noise", "early stopping", "`choose`", "chosen"]]
    for task in ("digits", *ELSEWHERE):
        rows = dicts(of("choice", f"{task}: clean accuracy of early stopping, 3 starts, and points over it"))
        for row in rows:
            if row["noise"] != "mean":
                name = f"digits, {row['noise']}" if task == "digits" else ELSEWHERE[task]
                points = bold(row["choose"])
                lines.append([name, row["early stopping, 3 starts"], points, row["chosen"]])
    return lines


STARTED = {  # results file and title of a table of `real.starts`
    "frozen features of LabelMe": ("real_starts_frozen", "frozen LabelMe, adam"),
    "frozen features of TREC": ("real_starts_frozen", "frozen TREC, adam"),
    "digits, 40% of six classes swapped": ("real_starts_digits", "digits, adam"),
    "1,000 synthetic classes, 40% wrong": ("real_starts_groups", "groups, adam"),
    "CIFAR-100N from scratch, 8,000 labels": ("real_starts_scratch", "scratch, adamw"),
}
STARTS = {
    "Dense": "`Dense`, Keras' start",
    "Dense, logits / 5": "`Dense`, Keras' start, logits / 5",
    "Dense from zeros": "`Dense` from zeros",
    "Dense from zeros, logits / 5": "`Dense` from zeros, logits / 5",
    "full head, multiplier 1": "head, Keras' start",
    "full head from zeros, multiplier 1": "head from zeros",
}


def starts_elsewhere(of):
    """Returns the accuracy of `Dense` and of the head from two starts, a row for each task."""
    layers = ["Dense", "Dense from zeros", "full head, multiplier 1", "full head from zeros, multiplier 1"]
    lines = [["task", *(STARTS[layer] for layer in layers), "seeds"]]
    for name, table in STARTED.items():
        rows = {row["last layer"]: row for row in dicts(of(*table))}
        accuracies = [rows.get(layer, {}).get("accuracy", "") for layer in layers]
        lines.append([name, *accuracies, rows["Dense"]["seeds"]])
    return lines


def starts(of):
    """Returns accuracy and NLL of each last layer on frozen features, a row for each layer and start."""
    tables = [
        {row["last layer"]: row for row in dicts(of("real_starts_frozen", f"frozen {count}, adam"))}
        for count in (5000, 18000)
    ]
    head = [f"{name}, {count} labels" for count in ("5,000", "18,000") for name in ("accuracy", "NLL")]
    lines = [["last layer", *head]]
    for row, words in STARTS.items():
        lines.append([words, *(table.get(row, {}).get(name, "") for table in tables for name in ("accuracy", "NLL"))])
    return lines
