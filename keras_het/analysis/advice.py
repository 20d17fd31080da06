"""The one advice on methods: `diagnose_noise`, the report, the README and the pages read it here.

The figures behind each row are in `benchmarks/results`; `benchmarks/lib/views/labels.py` prints them beside it.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Advice:
    """The method to begin with for labels of one sort.

    Attributes:
        labels: completion of "your labels ...", in plain words.
        kinds: kinds of noise of `diagnose_noise` that it is for.
        method: names of functions and classes in backquotes, and plain words.
    """

    labels: str
    kinds: tuple[str, ...]
    method: str


HEAD = "`labels.methods.Heteroscedastic()`"
ROWS: tuple[Advice, ...] = (
    Advice(
        "may be wrong, you do not know how; or name any other class, at random (symmetric)",
        ("unknown", "uniform"),
        "`labels.choose`",
    ),
    Advice(
        "are right, or nearly; or are of examples that belong to no class",
        ("none", "outliers"),
        "label smoothing: `losses.SmoothedCrossentropy`",
    ),
    Advice(
        "are swapped between whole classes (class-dependent)",
        ("pairs", "pattern"),
        "`labels.choose`; by hand, `losses.ForwardCorrectedCrossentropy` with the `transition` of "
        "`analysis.diagnose_noise`",
    ),
    Advice(
        "name a class that the example looks like (instance-dependent)",
        ("by example",),
        f"`labels.choose` with the head, {HEAD}, among its `methods`",
    ),
)
ANNOTATORS = "`labels.clean(None, x, votes)`"  # of several labels of each example; no kind can tell


def advice_of(kind: str) -> Advice:
    """The row for a kind of noise of `diagnose_noise`."""
    return next(row for row in ROWS if kind in row.kinds)


def next_step(kind: str) -> str:
    """The method to begin with, in a sentence without backquotes.

    Args:
        kind: kind of a `NoiseDiagnosis`.

    Example:
        >>> next_step("none")
        'Begin with label smoothing: losses.SmoothedCrossentropy.'
    """
    return f"Begin with {advice_of(kind).method}.".replace("`", "")
