"""What the demo prints: a paragraph for each noise, and a table."""

import textwrap

import keras
import numpy as np

WIDTH = 100
HEAD = ("wrong labels", "early stopping", "chosen", "points", "method", "precision", "recall")


def describe(settings, findings):
    """All that is printed of the findings: those of the first seed in words, and a table over all seeds."""
    first = [finding for finding in findings if finding.seed == findings[0].seed]
    title = (
        f"{settings.examples} digits, of which many have a wrong label. Nothing knew which; 517 other digits, with "
        f"right labels, only measure. Backend {keras.config.backend()}."
    )
    several = f"Means over {settings.seeds} seeds, +- a standard error; the text above is of the first."
    over = several if settings.seeds > 1 else "One seed: a few points may be chance, as --seeds 5 shows."
    scope = (
        f"Accuracy on right labels: early stopping (crossentropy, the best of {settings.starts} by noisy labels), and "
        "the model of keras_het.choose. Precision and recall: of the wrong labels that it names."
    )
    parts = [_wrapped(title), *map(paragraph, first), "\n".join(aligned(table(findings))), _wrapped(f"{scope} {over}")]
    return "\n" + "\n\n".join(parts)


def paragraph(finding):
    """What was found of one noise."""
    said, planted, issues = finding.said, finding.planted, finding.issues
    lines = [
        f"accuracy      {finding.early_stopping:.3f} by early stopping, {finding.chosen:.3f} by keras_het.choose",
        f"method        {finding.reason}",
        f"disagreement  with {said.share:.0%} of the labels, by its model; {planted.share:.0%} are wrong",
        f"classes       {flips_in_words(said.flips, planted.flips)}",
    ]
    if finding.pairs is not None:
        lines.append(f"look-alikes   {pairs_in_words(finding.pairs, finding.planted_pairs)}")
    if issues.named:
        named = f"{issues.named} labels are named as wrong: {issues.precision:.0%} of them are"
        lines.append(f"which ones    {named}, and they are {issues.recall:.0%} of all wrong ones")
    else:
        lines.append("which ones    no label is named as wrong")
    return "\n".join([finding.noise.upper(), *(_wrapped(line, 14) for line in lines)])


def flips_in_words(found, planted):
    """The flips that are said to be systematic, and how many of them were planted."""
    found, planted = ({(flip.true, flip.label) for flip in flips} for flips in (found, planted))
    if not found:
        return f"none is labelled as another one more often than by chance ({len(planted) or 'none'} planted)"
    names = ", ".join(f"{true} as {label}" for true, label in sorted(found))
    right = f"{len(found & planted)} of {len(found)} are right, {len(planted)} were planted"
    return f"labelled as another one too often for chance: {names} ({right})"


def pairs_in_words(found, planted):
    """The pairs that a head takes for each other, and how many of them the noise swaps most."""
    if not found:
        return "the covariance of a HeteroscedasticDense head holds no two classes for each other"
    right, names = set(map(tuple, found)) & set(map(tuple, planted)), ", ".join(f"{i} - {j}" for i, j in found)
    counts = f"{len(right)} of {len(found)} are of the {len(planted)} most confused"
    return f"the covariance of a HeteroscedasticDense head says: {names} ({counts})"


def table(findings):
    """The table, a row for each noise: means over the seeds, with standard errors where there are several."""
    lines = [list(HEAD)]
    for noise in dict.fromkeys(finding.noise for finding in findings):
        own = [finding for finding in findings if finding.noise == noise]
        gained = [100 * (finding.chosen - finding.early_stopping) for finding in own]
        lines.append(
            [
                noise,
                with_error([finding.early_stopping for finding in own]),
                with_error([finding.chosen for finding in own]),
                with_error(gained, "+.1f", ".1f"),
                methods([finding.method for finding in own]),
                with_error([finding.issues.precision for finding in own]),
                with_error([finding.issues.recall for finding in own]),
            ]
        )
    return lines


def methods(names):
    """The names, the most frequent first, with their numbers if there are several."""
    counts = {name: names.count(name) for name in sorted(names, key=names.count, reverse=True)}
    return ", ".join(f"{name} {count}" if len(names) > 1 else name for name, count in counts.items())


def mean_error(values):
    """Mean and standard error of values, one for each seed; the error of a single one is nan."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(error)


def with_error(values, form=".3f", of_error=".3f"):
    """The mean +- standard error of values as text; the mean alone for a single value."""
    mean, error = mean_error(values)
    return f"{mean:{form}}" if np.isnan(error) else f"{mean:{form}} +- {error:{of_error}}"


def aligned(rows):
    """Rows of texts as lines with columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _wrapped(text, indent=0):
    return textwrap.fill(text.strip(), WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
