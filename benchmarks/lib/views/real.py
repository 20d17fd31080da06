"""Tables of results on labels of people and rules, and of the methods that were compared."""

import re

from benchmarks.lib.views.rows import bold, columns_of, dicts, value

PARTS = {"sets that decided": "decided", "sets that had no say": "no say", "planted": "planted"}
AUDITS = {"find_label_issues": "`find_issues`", "argmax is not the label": "every label that is not the top class"}
METHODS = {  # rows of real_clean, in words
    "logistic regression": "logistic regression",
    "linear discriminant": "discriminant of scikit-learn",
    "clean": "`clean`",
}
JUDGES = ("verified alone", "verify_accuracy")  # columns of real_judge
CROWDS = {  # rows of real_annotators, in words
    "clean, votes": "`labels.clean(None, x, votes=votes)`",
    "clean, majority": "`labels.clean(None, x, y)` of the majority",
    "majority + logistic regression": "majority, logistic regression",
    "Dawid-Skene + logistic regression": "`aggregate`, logistic regression",
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


def error_rates(of):
    """Returns the fraction of label errors of each set; `real.clean` has not been run on CIFAR-100N."""
    known = {row["set"]: row["wrong"] for row in dicts(of("real_clean", "what clean found"))}
    return known | {"CIFAR-100N": f"{float(value(dicts(of('real_issues', 'CIFAR-100N'))[0]['wrong'])):.2f}"}


def real_methods(of):
    """Returns accuracy and balanced accuracy of `clean` and of scikit-learn, a row for each set."""
    wrong = error_rates(of)
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


FROZEN = {  # tasks of real_heads: set and number of labels
    "frozen CIFAR-10N worst 5000": ("CIFAR-10N worst", "5,000"),
    "frozen CIFAR-10N aggregate 5000": ("CIFAR-10N aggregate", "5,000"),
    "frozen CIFAR-10N random1 5000": ("CIFAR-10N random1", "5,000"),
    "frozen CIFAR-100N 5000": ("CIFAR-100N", "5,000"),
    "frozen Fashion-MNIST-H 5000": ("Fashion-MNIST-H", "5,000"),
    "frozen LabelMe": ("LabelMe", "1,000"),
    "frozen TREC": ("TREC", "5,033"),
}
FOUR = ("CIFAR-10N worst", "CIFAR-10N aggregate", "Fashion-MNIST-H", "TREC")  # sets that README names
HEAD, PENALISED = "full from zeros", "full from zeros, penalty"
POINTS, NLL = "points over the better Dense", "NLL over it"
CHOSEN, DEFAULT, TUNED = ", by likelihood", ", last epoch at the default rate", ", last epoch by likelihood"
COMPARED = (
    *(f"{row}, {rate} rate" for rate in ("default", "tuned") for row in ("`Dense`", "head")),
    "logistic regression", "`labels.clean`",
)  # fmt: skip


def heads(of):
    """Returns accuracies on frozen features at the best noisy likelihood, a row for each set."""
    wrong = error_rates(of)
    head = [
        "dataset",
        "labels",
        "label errors",
        "`Dense`",
        "logistic regression",
        "`labels.clean`",
        "head",
        "head over `Dense`",
    ]
    lines = [[*head, "seeds"]]
    for names, dense, rows in _frozen(of, CHOSEN):
        cells = [value(row["accuracy"]) for row in (dense, rows["logistic regression"], rows["clean"], rows[HEAD])]
        lines.append([*names, wrong.get(names[0], ""), *cells, rows[HEAD][POINTS], rows[HEAD]["seeds"]])
    return lines


def readme_heads(of):
    """Returns accuracy after the last epoch, a row for each of four sets."""
    wrong = error_rates(of)
    lines = [["dataset", "label errors", *COMPARED]]
    for names, own, _, _ in _compared(of):
        if names[0] in FOUR:
            lines.append([names[0], f"{100 * float(wrong[names[0]]):.0f}%", *(value(row["accuracy"]) for row in own)])
    return lines


def unstopped(of):
    """Returns accuracy after the last epoch, a row for each set."""
    lines = [["dataset", *COMPARED, *(f"head over `Dense`, {rate} rate" for rate in ("default", "tuned")), "seeds"]]
    for names, own, default, tuned in _compared(of):
        cells = [value(row["accuracy"]) for row in own]
        lines.append([names[0], *cells, default[POINTS], tuned[POINTS], tuned["seeds"]])
    return lines


def likelihoods(of):
    """Returns NLL, and crossentropy with people's votes, after the last epoch, a row for each set."""
    lines = [["dataset", *COMPARED, *(f"head - `Dense`, {rate} rate" for rate in ("default", "tuned"))]]
    lines[0] += [f"votes: {row}" for row in COMPARED[2:]]
    for names, own, default, tuned in _compared(of):
        cells = [value(row["nll"]) for row in own]
        votes = [value(row.get("people", "")) for row in own[2:]]
        lines.append([names[0], *cells, default[NLL], tuned[NLL], *votes])
    return lines


def penalised(of):
    """Returns accuracy and NLL of a head with the penalty of logistic regression, a row for each set."""
    rows = {"logistic regression": "logistic regression", PENALISED: "head with penalty"}
    lines = [["dataset", *(f"{measure}: {words}" for measure in ("accuracy", "NLL") for words in rows.values())]]
    for names, _, found in _frozen(of, TUNED):
        cells = (found[row][measure] for measure in ("accuracy", "nll") for row in rows)
        lines.append([names[0], *cells])
    return lines


def _compared(of):
    """Yields the names of a set, the rows of `COMPARED`, and the head's rows at its default and its tuned rate."""
    for (names, dense, default), (_, tuned_dense, tuned) in zip(_frozen(of, DEFAULT), _frozen(of, TUNED), strict=True):
        own = [dense, default[HEAD], tuned_dense, tuned[HEAD], tuned["logistic regression"], tuned["clean"]]
        yield names, own, default[HEAD], tuned[HEAD]


def kinds(of):
    """Returns what three kinds of covariance reach on CIFAR-10N worst at the default rate, after the last epoch."""
    lines = [["head", "accuracy", "points over `Dense`", "NLL over `Dense`"]]
    for row in dicts(of("real_heads", f"frozen CIFAR-10N worst 5000{DEFAULT}")):
        if row["last layer"] in KINDS:
            lines.append([KINDS[row["last layer"]], row["accuracy"], row[POINTS], row[NLL]])
    return lines


KINDS = {
    HEAD: "full",
    "parameter-efficient from zeros": "parameter-efficient",
    "diagonal from zeros": "diagonal",
    "Dense / 5": "`Dense`, Keras' start, logits / 5",
}


def people_confuse(of):
    """Returns rank correlations of the pairs that people confuse with what Dense and the full head say of pairs."""
    lines = [
        [
            "dataset",
            "`p.T @ p` of `Dense`",
            "`p.T @ p` of the head",
            "covariance of the head",
            "covariance of the head with penalty",
        ]
    ]
    for names, dense, rows in _frozen(of, TUNED):
        if "pairs by p" in dense:
            cells = (row["pairs by p"] for row in (dense, rows[HEAD]))
            covariances = (rows[row]["pairs by covariance"] for row in (HEAD, PENALISED))
            lines.append([names[0], *cells, *covariances])
    return lines


def _frozen(of, rule):
    """Yields set and number of labels, the better start of `Dense`, and the rows by last layer."""
    for task, names in FROZEN.items():
        rows = {row["last layer"]: row for row in dicts(of("real_heads", f"{task}{rule}"))}
        yield names, next(row for row in rows.values() if not row[POINTS]), rows


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


def starts(of):
    """Returns the accuracy of `Dense` from two starts and of the head, at the best noisy likelihood, by set."""
    lines = [["dataset", "labels", "`Dense`, Keras' start", "`Dense` from zeros", "head from zeros"]]
    for names, _, rows in _frozen(of, CHOSEN):
        lines.append([*names, *(rows[row]["accuracy"] for row in ("Dense", "Dense from zeros", HEAD))])
    return lines


def fine_tuned(of):
    """Returns what three last layers of a whole network reach, with a chosen epoch and after the last one."""
    rules = [
        {row["last layer"]: row for row in dicts(of("real_finetune", f"words{rule}"))} for rule in ("", ", last epoch")
    ]
    lines = [
        ["last layer", *(f"{name}, {when}" for name in ("accuracy", "NLL", "votes") for when in ("chosen", "last"))]
    ]
    for name, words in LAYERS.items():
        cells = (rows[name][measure] for measure in ("accuracy", "nll", "people") for rows in rules)
        lines.append([words, *cells])
    return lines


LAYERS = {
    "Dense": "`Dense`, Keras' start",
    "Dense from zeros": "`Dense` from zeros",
    HEAD: "head from zeros",
    "logistic regression": "logistic regression on frozen features",
}


def from_scratch(of):
    """Returns accuracy and NLL of networks from random weights, at the best noisy likelihood, by set and epoch."""
    layers = {"Dense": "`Dense`, Keras' start", "Dense from zeros": "`Dense` from zeros", "full": "head, Keras' start"}
    layers |= {HEAD: "head from zeros"}
    lines = [["dataset", "epoch", "measure", *layers.values(), "head over `Dense`"]]
    for name in ("Fashion-MNIST-H", "CIFAR-10N worst"):
        for epoch, rule in (("chosen", CHOSEN), ("last", TUNED)):
            rows = {row["last layer"]: row for row in dicts(of("real_scratch", f"scratch {name} 4000{rule}"))}
            for title, measure, over in (("accuracy", "accuracy", POINTS), ("NLL", "nll", NLL)):
                cells = (value(rows[layer][measure]) for layer in layers)
                lines.append([name, epoch, title, *cells, rows["full"][over]])
    return lines
