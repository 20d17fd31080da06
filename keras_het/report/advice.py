"""The advice of a report: a summary of its numbers, and the next steps, by rules with stated limits."""

import numpy as np

from keras_het.analysis.label_quality import LabelIssues
from keras_het.explain.plots.drawing import shortened
from keras_het.labels.diagnosis import ANSWERS, NEXT_STEPS
from keras_het.report.findings import Findings

ECE = 0.05  # above this calibration error, confidence should not be read as a probability
FEWEST = 20  # labels of a class; little can be said of a class with fewer
NO_PAIR = (
    "No two classes share more noise in the head than chance could give; that does not say that none are confused."
)
LITTLE_NOISE, MUCH_NOISE = 0.1, 3.0  # in temperatures: less changes no prediction, more may hide the classes


def summary(found: Findings) -> list[str]:
    """The findings in a few sentences."""
    count, classes = len(found.labels), len(found.class_names)
    of_all = f"Of {count:,} examples of {classes:,} classes"
    lines = [f"{of_all}, the most probable class is the given label for {found.accuracy:.1%}."]
    lines.append(f"On average the model is {_confidence(found):.1%} sure of its prediction; {_calibrated(found)}")
    if found.issues is not None:
        lines.append(_issues(found, found.issues))
    lines.extend(_pairs(found))
    return lines


def _pairs(found: Findings) -> list[str]:
    """The first pair of classes, by the suspects if they tell one, else by the covariance."""
    if found.pair_flips:
        first, second, count = found.pair_flips[0]
        between = f"{count:,} of {found.number_of_issues:,} suspects are between the two"
        return [
            f"{_quoted(first)} and {_quoted(second)} are taken for each other more often than by chance: {between}."
        ]
    if found.pairs:
        first = found.pairs[0]
        return [f"The two classes that share most noise are {_quoted(first.first)} and {_quoted(first.second)}."]
    return [] if found.pairs is None else [NO_PAIR]


def _confidence(found: Findings) -> float:
    filled = found.calibration.count > 0
    return float(np.average(found.calibration.confidence[filled], weights=found.calibration.count[filled]))


def _calibrated(found: Findings) -> str:
    gap = _confidence(found) - found.accuracy
    if found.calibration.error <= ECE:
        return f"that is close to how often it is right (calibration error {found.calibration.error:.3f})."
    error = f"(calibration error {found.calibration.error:.3f})."
    if gap > 0:
        return f"that is more than how often it is right: take it with care {error}"
    return f"that is less than how often it is right: it could be more sure {error}"


def _issues(found: Findings, issues: LabelIssues) -> str:
    number = found.number_of_issues
    if not number:
        return f"No label is probably wrong, by {'this training' if found.epochs else 'these probabilities'}."
    first = issues.is_issue.argmax()
    given, suggested = (_quoted(found.class_names[labels[first]]) for labels in (issues.given, issues.suggested))
    worst = f"The worst is example {issues.index[first]}, labelled {given}, for which the model says {suggested}."
    confusable = int(np.sum(issues.kind == "confusable"))
    share = f"{number:,} labels ({number / len(found.labels):.1%}) are probably wrong"
    return f"{share}, {confusable:,} of them of classes that are often taken for each other. {worst}"


def _quoted(name: object) -> str:
    return f"“{shortened(name, longest=40)}”"


def next_steps(found: Findings) -> list[str]:
    """The next steps, in sentences, the most urgent first."""
    rules = (_useless, _in_sample, _look_at_labels, _method, _rare_classes, _confused, _badly_calibrated, _temperature)
    steps = [step for rule in rules if (step := rule(found))]
    return steps or ["Nothing here asks for a change. Correct the labels that you see are wrong, and train again."]


def _useless(found: Findings) -> str | None:
    share = float(np.bincount(found.labels).max() / len(found.labels))
    if found.accuracy > share or len(np.unique(found.labels)) < 2:
        return None
    return (
        f"Trust nothing below yet: the model is right for {found.accuracy:.1%}, and to say the most frequent label "
        f"always would be right for {share:.1%}. Train it longer, or look for a mistake in the data or in the order of "
        "the classes."
    )


def _in_sample(found: Findings) -> str | None:
    if found.out_of_sample:
        return None
    if found.epochs:
        return (
            "The model was trained on these examples, so accuracy, likelihood and calibration on this page are too "
            "good; the suspects are judged by the whole training. For figures to trust, use examples that it was not "
            "trained on, or give the report probabilities=..., by cross-validation."
        )
    return (
        "If the model was trained on these examples, the scores on this page are too good, and fewer wrong labels are "
        "found than there are, because a model learns some wrong labels by heart. Use examples that it was not trained "
        "on, or give the report probabilities=..., by cross-validation."
    )


def _look_at_labels(found: Findings) -> str | None:
    if not found.number_of_issues:
        return None
    return (
        f"Look at the {found.number_of_issues:,} suspects, the worst first, in the table below and in labels.csv. They "
        "are suspects: the model may be wrong, too. Where a label is wrong, write the right class into the column "
        "corrected of labels.csv; apply that by keras_het.analysis.apply_corrections, and train again."
    )


def _method(found: Findings) -> str | None:
    """The advice of the diagnosis, where it tells a kind of noise."""
    if found.diagnosis is None:
        return None
    return f"Label noise: {ANSWERS[found.diagnosis.kind]} {found.diagnosis.reason} {NEXT_STEPS[found.diagnosis.kind]}"


def _rare_classes(found: Findings) -> str | None:
    counts = np.bincount(found.labels, minlength=len(found.class_names))
    rare = int(np.sum(counts < FEWEST))
    if not rare:
        return None
    return (
        f"{rare:,} of {len(counts):,} classes have fewer than {FEWEST} labels here, {int(np.sum(counts == 0)):,} of "
        "them none: of these classes little can be said."
    )


def _confused(found: Findings) -> str | None:
    if found.pair_flips:
        return (
            f"Look at examples of the classes that are taken for each other ({_named(found.pair_flips)}). Say in the "
            "instructions for labelling how to tell them apart, or join them."
        )
    either = [(pair.first, pair.second) for pair in found.pairs or [] if pair.covariance < 0]
    if not either:
        return None
    return (
        f"The head has learned that some labels may be of the one or the other of two classes ({_named(either)}); the "
        "suspects do not show it. Look at some examples of these classes before you change anything."
    )


def _named(pairs: list) -> str:
    return "; ".join(f"{_quoted(pair[0])} and {_quoted(pair[1])}" for pair in pairs[:3])


def _badly_calibrated(found: Findings) -> str | None:
    error = found.calibration.error
    if error <= ECE:
        return None
    remedy = "scale the probabilities by held-out labels (keras_het.models.scale_temperature)"
    of_head = "choose the temperature of the head by held-out labels (keras_het.tune), or "
    return (
        f"The calibration error is {error:.3f}, above {ECE}: do not read the confidence as a probability. To mend it, "
        f"{of_head if found.noise else ''}{remedy}."
    )


def _temperature(found: Findings) -> str | None:
    sd = float("nan") if found.noise is None else found.noise.head.noise_sd
    if sd < LITTLE_NOISE:
        return (
            f"The noise is {sd:.2f} temperatures, below {LITTLE_NOISE}, where it changes hardly any prediction: this "
            "head is nearly a plain one. There may be little noise to learn, or the temperature may be too high: try "
            "lower ones with keras_het.tune."
        )
    if sd > MUCH_NOISE:
        return (
            f"The noise is {sd:.2f} temperatures, above {MUCH_NOISE}: it may hide what the model knows. Try higher "
            "temperatures with keras_het.tune."
        )
    return None
