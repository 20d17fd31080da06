"""Rounds of cases that hypothesis draws, each round by a seed, until the time is over."""

import collections
import faulthandler
import gc
import pathlib
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis
import keras
from hypothesis.database import DirectoryBasedExampleDatabase

EXAMPLES = 50  # of a round
HANGS = 300  # seconds of a case, then the process ends with a traceback


class Fuzz(NamedTuple):
    """Cases of a strategy, and a check of each that returns in a word how it ended; any exception is a failure."""

    cases: Any
    run: Callable[[Any], str]


class Figures(NamedTuple):
    """How many cases ended how, the first seed and the one after the last, seconds, and the smallest failing case."""

    ends: collections.Counter
    seeds: tuple[int, int]
    seconds: float
    failure: str | None

    def __str__(self):
        ends = ", ".join(f"{count} {end}" for end, count in self.ends.most_common())
        seeds = f"seeds {self.seeds[0]} to {self.seeds[1] - 1}"
        return f"{self.ends.total()} cases ({ends}), {seeds}, {self.seconds:.0f} s" + (
            f"\n{self.failure}" if self.failure else ", no failure"
        )


def run(fuzz, seconds, first_seed, folder, examples=EXAMPLES):
    """Runs rounds, at least one, until the time is over, or a case fails; that case is tried first the next time."""
    ends, start, folder = collections.Counter(), time.monotonic(), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def run_case(case):
        (folder / "last_case.txt").write_text(repr(case)[:10000])
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            ends[fuzz.run(case)] += 1
        finally:
            faulthandler.cancel_dump_traceback_later()

    seed, failure = first_seed, None
    while failure is None and (seed == first_seed or time.monotonic() - start < seconds):
        failure = _failure_of(_round(fuzz.cases, run_case, seed, folder, examples))
        _forget()
        seed += 1
    return Figures(ends, (first_seed, seed), time.monotonic() - start, failure)


def _round(cases, run_case, seed, folder, examples):
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        phases=[phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],
        database=DirectoryBasedExampleDatabase(folder / "examples"),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    seeded = hypothesis.seed(seed)(hypothesis.given(case=cases)(lambda case: run_case(case)))
    return settings(seeded)  # in this order: `seed` takes the database away


def _failure_of(round_of_cases):
    """The smallest failing case with its error, or None."""
    try:
        round_of_cases()
    except Exception as error:
        lines = "".join(traceback.format_exception(error, limit=-6)).splitlines()  # with the case, in a note
        return "\n".join(["FAILED", *filter(str.strip, lines)])
    return None


def _forget():
    """Frees what Keras and the backend keep of layers and programs that are gone."""
    keras.utils.clear_session()
    if keras.config.backend() == "jax":
        import jax

        jax.clear_caches()
    gc.collect()
