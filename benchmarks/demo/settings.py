"""The settings of the demo."""

from typing import NamedTuple

from keras_het.training import DEFAULTS

from benchmarks.demo.data import KNOWN, NOISES
from keras_het.base.validation import check_integer

FEWEST = 100  # examples, so that every class has some in each part


class Settings(NamedTuple):
    """The settings of a run of the demo.

    Attributes:
        seeds: seeds 0 to seeds - 1 are run.
        noises: names of `NOISES`.
        examples: with noisy labels.
        epochs: of each training, at most.
        starts: trainings of early stopping, of which the best is taken.
        folds: of `choose`.
    """

    seeds: int = 1
    noises: tuple[str, ...] = tuple(NOISES)
    examples: int = KNOWN
    epochs: int = 50
    starts: int = 3
    folds: int = 5

    @property
    def trainings_of_choose(self):
        """The most trainings that one call of `choose` may need."""
        return self.folds * sum(len(candidate.strengths) for candidate in DEFAULTS) + 1


QUICK = Settings(noises=("swapped pairs",), epochs=30, starts=1, folds=2)


def check_settings(settings):
    """Returns `settings` if they are valid.

    Raises:
        ValueError: if not; it names the argument, the rule and the value received.
    """
    for name, least in {"seeds": 1, "epochs": 1, "starts": 1, "folds": 2}.items():
        check_integer(name, getattr(settings, name), least)
    if not FEWEST <= check_integer("examples", settings.examples, FEWEST) <= KNOWN:
        raise ValueError(f"`examples` must be at most {KNOWN}. Received: examples={settings.examples}")
    unknown = [name for name in settings.noises if name not in NOISES]
    if unknown or not settings.noises:
        rule = f"be one or more of {', '.join(map(repr, NOISES))}"
        raise ValueError(f"`noises` must {rule}. Received: {repr(unknown[0]) if unknown else 'none'}")
    return settings
