"""The measured figures in the sentences of the pages, and the result files that they come from.

`figures` has fragments of sentences with a place for each figure, and the figures, computed from the tables. `wrong`
compares them with a page, and finds figures that look measured and are neither there nor in `SETTINGS`.
"""

import itertools
import re

from benchmarks.lib import pages, results
from benchmarks.lib.views.rows import dicts

# No sentences: fenced code, formulas in blocks, rows of tables, comments, tags, and the targets of links.
NO_SENTENCE = re.compile(
    r"^ *```.*?^ *```|\$\$.*?\$\$|^ *\|[^\n]*|<!--.*?-->|</?\w[^>]*>|(?<=\])\([^)]*\)", re.DOTALL | re.MULTILINE
)
CODE = re.compile(r"`[^`]*`|\$[^$]*\$")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBER = rf"\b(?:\d[\d,]*|{'|'.join(WORDS[1:])})\b"
UNITS = "points?|times|(?:processor )?(?:milliseconds|seconds|minutes|hours)|ms|s|percent|[KMG]i?B"
# A number looks measured if it has a decimal point, an error, a % or a unit, or if it is counted of another number.
MEASURED = re.compile(
    rf"(?<![\w.:])\d+\.\d+(?!\.?\d)|± ?\d+|{NUMBER}(?=%|[ -](?:{UNITS})\b| of {NUMBER}| instead of {NUMBER})"
)

# Fragments with numbers that are no results: settings, definitions, limits that tests hold, versions, and facts about
# papers and datasets.
SETTINGS = {
    "README.md": "if 40% of the labels | 10% of the labels are wrong | Python 3.11 to 3.13 | Apache 2.0",
    "docs/backends.md": "40% of the labels are wrong | limited to 512 MiB | OpenVINO within 0.01 | Keras 3.16",
    "docs/parity.md": "hides a fault of ten percent | 3 of 120 arrays | every part three times",
    "docs/heads.md": "40% of their labels are swapped | fit in 2 GB | below 15.5",
    "docs/joint.md": "if 30% of the positives | [30% of the positives missing] | With 30% of the positives",
    "docs/judge.md": "up to 7 points on either side | of 95% intervals",
    "docs/annotators.md": "its 95% interval",
    "docs/real-labels.md": "Its 95% interval | With 3% of rare examples | If 10% of the labels are flipped | "
    "that one of ten people named | 2.5 votes an image | 5.6 votes | 1.7 votes an example",
    "docs/index.md": "Python 3.11, 3.12 or 3.13",
    "docs/pretrained.md": "within 0.02 | labels by people, 40% wrong | KerasHub 0.32 | "
    "on Keras 3.15 | is used 2 times | because Keras 3.15",
    "docs/glossary.md": "about 40% label errors",
    "docs/when-it-helps.md": "if 40% of the labels are wrong | 40% of them are wrong | if 40% of the labels "
    "name a look-alike, and at most half a point at 20% | There, 45% of every second | 35% of each class | (one seed)",
    "docs/theory.md": "44.8 million weights | 48.8 times fewer | sigmoid temperature of 0.9",
}

AGREEMENTS = [f"gpu_agreement_{name}, agreement" for name in ("jax", "torch")]
GPU = ("ms (quartiles)", "times Dense")
EDWARD2, FULL, EFFICIENT = "views.beside_edward2", "softmax, full", "softmax, parameter-efficient"
MISSING = "joint, 30% of the positives missing"
TRANSITIONS = "real_truth, error in points, how often intervals hold, and redraws"
METHODS = "views.real_methods"
RATINGS, MASKS = "real_joint, MovieReviews", "real_joint, BU-BIL 4"
FEW, SPAM, OF_VOTES = "real_annotators, few votes", "real_annotators, spammers", "real_votes, what is made of votes"
ONE_VOTE, TWO_VOTES, SPAMMERS = (("LabelMe", votes) for votes in ("one vote each", "two votes each", "30 spammers"))
RULES = "real_annotators, TREC"
CHOICE = "choice, digits: clean accuracy of early stopping, 3 starts, and points over it"
CRITERIA, NOISY = "recipe, mean rank correlation over the tasks", ("noisy NLL", "noisy accuracy")
LARGE = "real_heads, CIFAR-100N, 45000 labels"
SCRATCH, SCRATCH_SETS = "real_scratch, temperature by noisy accuracy", ("CIFAR-10N worst", "CIFAR-100N")
NINE, PLAIN = "views.when_it_helps", "`Dense`, temperature 1"
CONSTANT = "real_finetune_constant, fine-tuned"
FINE_TUNED = "real_finetune, fine-tuned"
FROM_ZEROS = "real_finetune_zeros, fine-tuned"
RATES, LARGEST, TUNED = "real_pretrained, each rate", ("CIFAR-10N worst", "45000"), ("Dense, logits / 5", "full head")
VOTES, NETWORK, MATRICES = "`labels.clean(None, x, votes=votes)`", "majority + Dense", "a T for each, from Dawid-Skene"


def figures():
    """Returns the figures of each fragment, `{page: {fragment: figures}}`, from the result files."""
    fine_tuned, constant = (
        [100 * each for each in numbers(name, "accuracy - logits / 5", "CIFAR", count, "full")]
        for name, count in ((FINE_TUNED, "10000"), (CONSTANT, "18000"))
    )
    packages, ratings = ("keras_het", "edward2"), ("mean of the ratings, ridge", "and weighted by spread, ridge")
    memory = [numbers(EDWARD2, name, FULL)[1] for name in packages]
    full, efficient = (
        [values(row["keras_het"])[0] / values(row["edward2"])[0] for row in rows(EDWARD2, head)]
        for head in (FULL, EFFICIENT)
    )
    errors = [number(RATINGS, "error of the target", name) for name in ratings]
    times = [values(x["clean"])[0] for x in rows("real_clean, processor seconds") if not x["set"].startswith("planted")]
    large = (("CIFAR-10N worst", "18,000"), ("CIFAR-10N worst", "50,000"), ("CIFAR-100N", "45,000"))
    many = [number("views.real_heads", "head", *names) for names in large]
    base = ("full", "", "train", "128", "1000", "15", "256")
    gpu = {x: [number(f"gpu_speed_{x}, speed", column, *base) for column in GPU] for x in ("jax", "torch")}
    ranked = rows("views.rankings")
    ahead = [sum(float(row["`clean`"]) > float(row["logistic regression"]) for row in ranked), len(ranked)]
    return {
        "docs/backends.md": {
            "takes {:.0f} times as long as a step of `Dense` on JAX, {:.0f} times on TensorFlow, and {:.0f} times on": [
                number("speed, train, D=2048", "times Dense", name, "full") for name in ("jax", "tensorflow", "torch")
            ],
            "takes {:.0%} (AMD) or {:.0%} (Intel) of edward2's time with the full covariance, and {:.0%} or {:.0%} "
            "with the parameter-efficient one": [*full, *efficient],
            "At an equal error, the full head takes {:.0%} to {:.0%}": [
                least(ratio for row in rows(EDWARD2, "time to an equal error") for ratio in values(row["keras_het"]))
                for least in (min, max)
            ],
            "takes [{:.1f} ms on JAX], {:.1f} times as long as a step of `Dense`": gpu["jax"],
            "On PyTorch it takes [{:.1f} ms], {:.1f} times as long": gpu["torch"],
            "With TF32, outputs differ by up to {:.1e}": [
                max(
                    values(row["outputs, largest difference"])[0] for name in AGREEMENTS for row in rows(name, "", "on")
                )
            ],
        },
        "docs/compare.md": {
            "takes {:.0%} to {:.0%} of the time of a step, and {:.0f} MiB for 1,000 samples instead of {:,.0f} MiB": [
                *(least(full) for least in (min, max)),
                *memory,
            ],
            "On {} of {} real datasets": ahead,
        },
        "docs/heads.md": {
            "a step takes [{:.0f} MiB more] than with one node": memory[:1],
        },
        "docs/joint.md": {
            "is {:.3f} ± {:.3f} with binary crossentropy": numbers(MISSING, "accuracy", "Dense, binary crossentropy"),
            "{:.3f} ± {:.3f} with the known rate": numbers(MISSING, "accuracy", "joint, rate known"),
        },
        "docs/judge.md": {
            "the noisy labels is {:.0f} points too high": [number("views.judge", "error of noisy accuracy", "TREC")],
        },
        "docs/annotators.md": {
            "is correct for {:.0%} of them": [number(RULES, "accuracy", "crowd-kit's Dawid-Skene")],
            "it is [{:.0f} points better]": [points(FEW, (MATRICES, *TWO_VOTES), (NETWORK, *TWO_VOTES))],
        },
        "docs/methods.md": {
            "early stopping with 30 starts gains {:.1f} points on average, and `choose` gains {:.1f}": [
                number(CHOICE, column, "mean") for column in ("early stopping, 30 starts", "choose")
            ],
            "it flags {:.1%} of the digits and {:.0%} of the words": [
                number(f"dynamics, labels that are called wrong where none is, {name}", "share", "one training, mean")
                for name in ("digits", "words")
            ],
        },
        "docs/temperature.md": {
            "`Dense` {:.2f} from Keras' start and {:.2f} from zeros, the full head from zeros {:.2f}": [
                number(FINE_TUNED, "accuracy", "CIFAR-10N worst", "4000", "Dense"),
                number(FROM_ZEROS, "accuracy", "CIFAR-10N worst", "4000", "Dense, from zeros"),
                number(FROM_ZEROS, "accuracy", "CIFAR-10N worst", "4000", "full head, from zeros"),
            ],
            "**Zeros are worth {:.0f} points to `Dense`**": [
                -numbers("real_starts_frozen, frozen 5000, adam", "points over Dense from zeros", "Dense")[0]
            ],
            "it gains {:.1f} ± {:.1f} points, and its NLL is {:.3f} ± {:.3f} lower": [
                abs(each)
                for column in ("points over Dense from zeros", "NLL over it")
                for each in numbers(
                    "real_starts_frozen, frozen 18000, adam", column, "full head from zeros, multiplier 1"
                )
            ],
            "its NLL is {:.3f}, and of `Dense` from zeros {:.3f}": [
                numbers("real_starts_frozen, frozen TREC, adam", "NLL", row)[0]
                for row in ("full head from zeros, multiplier 1", "Dense from zeros")
            ],
            "`Dense` from zeros at a low rate reaches {:.3f}. Logits / 40 reach {:.3f},": [
                number("real_starts_groups, groups, adam", "accuracy", row)
                for row in ("Dense from zeros", "Dense, logits / 40")
            ],
            "40 times as slow, the accuracy is {:.3f}": [
                number("real_starts_groups, groups, adam", "accuracy", "Dense, speed / 40")
            ],
            "(rank correlation with clean accuracy {:.2f}, accuracy {:.2f})": [
                number(f"{CRITERIA}, label errors that depend on the example", "clean accuracy", name) for name in NOISY
            ],
            "accuracy is better ({:.2f}, likelihood {:.2f})": [
                number(f"{CRITERIA}, label errors at random", "clean accuracy", name) for name in reversed(NOISY)
            ],
            "head gains {:.1f} ± {:.1f} points if you tune by accuracy, and {:.1f} ± {:.1f} if": [
                100 * x
                for rule in ("accuracy", "likelihood")
                for x in numbers(f"{LARGE}, by noisy {rule}", "accuracy - Dense's", "full")
            ],
        },
        "docs/when-it-helps.md": {
            "With 10,000 labels of CIFAR-10N worst the head gained [{:.1f} ± {:.1f} points]": fine_tuned,
            "a constant learning rate, the difference was [{:.1f} ± {:.1f} points]": constant,
            "The head gains {:.1f} to {:.1f} points if": [least(many) for least in (min, max)],
            "{:.0%} of the labels of CIFAR-10N worst are wrong, {:.0%} of CIFAR-100N, {:.0%} of Fashion-MNIST-H, "
            "{:.0%} of random1, and {:.0%} of aggregate": [
                number(f"real_issues, {name}", "wrong", "clean")
                for name in (*SCRATCH_SETS, "Fashion-MNIST-H", "CIFAR-10N random1", "CIFAR-10N aggregate")
            ],
            "It gains {:.0f} to {:.0f} points**": [
                100 * number(NINE, "head - Dense: accuracy", name)
                for name in ("40% look-alike, digits", "40% look-alike, 3,000")
            ],
            "It loses {:.1f} points**": [-100 * number(NINE, "head - Dense: accuracy", "45% of every second")],
            "the accuracy of the head is {:.3f}, and of `Dense` {:.3f}": [
                number("nodes, training with S nodes", "accuracy", name) for name in ("S = 256", "Dense, temperature")
            ],
            "With 17% label errors it gains {:.1f} to {:.1f} points by": [
                number("views.real_heads", "head", "CIFAR-10N random1", count) for count in ("18,000", "5,000")
            ],
            "it gained {:.0f} points over `Dense`": [
                100 * number("harm, 100 classes: clean accuracy, beside Dense", "by class, 100 each", "full")
            ],
            "the error is {:.3f} without L2, and {:.3f} with it": [
                printed("label_flips", "6", f"L2 of {l2}: error on clean labels")[0] for l2 in ("0", "0.002")
            ],
            "the difference of the head from `Dense` is {:.1f} ± {:.1f} points on CIFAR-10N worst, and {:.1f} ± {:.1f} "
            "points on CIFAR-100N": [
                100 * each
                for name in SCRATCH_SETS
                for each in numbers(SCRATCH, "accuracy - Dense's", name, "45000", "full")
            ],
            "({:.3f} with `Dense` and {:.3f} with the head, instead of {:.3f})": _features_and_scratch(
                "CIFAR-100N", "45000"
            ),
            "({:.3f} and {:.3f}, instead of {:.3f})": _features_and_scratch("CIFAR-10N worst", "50000"),
            "is {:.3f} without T, and {:.3f} with it": printed("label_flips", "3", "error on clean labels:"),
        },
        "docs/pretrained.md": {
            "the head gained {:.1f} ± {:.1f} points over logits / 5": fine_tuned,
            "had an accuracy of {:.3f} on the same 4,000 labels": [
                number(CONSTANT, "accuracy", "CIFAR-10N worst", "4000", TUNED[0])
            ],
            "reached {:.3f} ± {:.3f} (two seeds), and {:.3f} on frozen features": [
                *numbers(RATES, "accuracy", *LARGEST, "Dense", "0.001"),
                number("views.real_heads", "`Dense`, tuned", "CIFAR-10N worst", "50,000"),
            ],
            "and the head reached {:.3f} and {:.3f} (one seed": [
                number(RATES, "accuracy", *LARGEST, head, "0.001") for head in TUNED
            ],
            "fine-tuned on them: {:.2f} and {:.2f}": [
                number("real_clean, accuracy, sets that decided", "clean", name) for name in ("CIFAR-10N worst", "TREC")
            ],
        },
        "docs/real-labels.md": {
            "regression on {} of {} datasets": ahead,
            "was off by {:.0f} points on average. Its 95% interval contained the truth in {:.0%}": numbers(
                TRANSITIONS, "in all", "gold labels"
            ),
            "was off by {:.0f} points, and its interval held in {:.0%}": numbers(
                TRANSITIONS, "in all", "clean labels alone"
            ),
            "It loses {:.0f} points of accuracy on msrc, and {:.0f} on fer": [
                _behind("accuracy", "logistic regression", name) for name in ("msrc", "fer")
            ],
            "it loses {:.0f} points, because": [_behind("accuracy", "logistic regression", "planted, 3% rare")],
            "`clean` takes {:.1f} to {:.0f} processor seconds": [least(times) for least in (min, max)],
            "`clean` gains {:.0f} points on LabelMe": [
                points("views.crowds", ("LabelMe", VOTES), ("LabelMe", "Dawid-Skene, logistic regression"))
            ],
            "is {:.0f} points above the same network on the majority": [
                points(FEW, (MATRICES, *TWO_VOTES), (NETWORK, *TWO_VOTES))
            ],
            "the same network is then {:.0f} points worse": [
                points(FEW, (NETWORK, *ONE_VOTE), ("Dawid-Skene + Dense", *ONE_VOTE))
            ],
            "has an accuracy of {:.2f} on TREC": [number(RULES, "accuracy", MATRICES)],
            "the network with matrices is {:.0f} points above the majority": [
                points(SPAM, (MATRICES, *SPAMMERS), (NETWORK, *SPAMMERS))
            ],
            "on LabelMe, their mean is {:.2f}, and {:.2f} of the classes are correct": [
                number(OF_VOTES, column, "LabelMe", "all") for column in ("mean probability", "right by Dawid-Skene")
            ],
            "On Sentiment, it is {:.2f} and {:.2f}": [
                number(OF_VOTES, column, "Sentiment", "all") for column in ("mean probability", "right by Dawid-Skene")
            ],
            "has {:.0%} less error": [1 - errors[1] / errors[0]],
            "falls from {:.3f} to {:.3f}": [number(RATINGS, "RMSE", name) for name in ratings],
            "costs {:.0f} points": [
                points(MASKS, ("IoU", "each pixel by itself, majority"), ("IoU", "each pixel by itself, one"))
            ],
        },
    }


def _behind(measure, other, name):
    """Returns how many points `clean` is behind another classifier on a set."""
    return points(METHODS, (f"{measure}: {other}", name), (f"{measure}: `clean`", name))


def _features_and_scratch(name, count):
    """Returns accuracies on a set: Dense and the full head on frozen features, and Dense in a network from scratch."""
    table = f"real_heads, {name}, {count} labels, by noisy accuracy"
    features = [number(table, "accuracy", row) for row in ("Dense", "full")]
    return [*features, number(SCRATCH, "accuracy", name, "45000", "Dense")]


def points(target, better, worse):
    """Returns the difference of two cells, `(column, *names)`, in hundredths."""
    return 100 * (number(target, *better) - number(target, *worse))


def number(target, column, *names):
    """Returns the first number of a cell, in the first row with the names."""
    return numbers(target, column, *names)[0]


def numbers(target, column, *names):
    """Returns all numbers of a cell."""
    return values(rows(target, *names)[0][column])


def values(cell):
    """Returns all numbers of a text."""
    return [float(each.replace(",", "")) for each in re.findall(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]\d+)?", cell)]


def printed(guide, cell, start):
    """Returns the numbers behind the start of a line that a cell of a guide prints."""
    text = results.read(results.ROOT / "guides" / "outputs" / f"{guide}.json").tables[cell]
    return values(next(line for line in text.splitlines() if line.startswith(start)).removeprefix(start))


def rows(target, *names):
    """Returns the rows, `{column: cell}`, of a table or view, or those whose first cells are the names.

    If no row has exactly these names, the cells begin with them. An empty cell of the first column means the one above.
    """
    table = dicts(pages.table_of(target))
    for above, row in itertools.pairwise(table):
        first = next(iter(row))
        row[first] = row[first] or above[first]
    same, begins = (
        [row for row in table if all(map(fits, row.values(), names))] for fits in (str.__eq__, str.startswith)
    )
    found = same or begins
    if not found:
        raise KeyError(f"{target}: no row {names}")
    return found


def wrong(page, text, known):
    """Returns what is wrong with the figures of a page: fragments that it lacks, and figures without an entry."""
    text = " ".join(NO_SENTENCE.sub("", pages.without_results(text)).split())
    fragments = [fragment.format(*results) for fragment, results in known.get(page, {}).items()]
    fragments += SETTINGS[page].split(" | ") if page in SETTINGS else []
    spans = [match.span() for each in fragments for match in re.finditer(re.escape(each), text)]
    figures = [match.span() for match in MEASURED.finditer(CODE.sub(lambda match: "_" * len(match[0]), text))]
    unlisted = [(a, b) for a, b in figures if not any(start <= a and b <= end for start, end in spans)]
    missing = [f"expected {each!r}" for each in fragments if each not in text]
    return [*missing, *(f"no entry for {text[max(0, start - 40) : end + 20]!r}" for start, end in unlisted)]
