"""The demo: three kinds of wrong labels on digits, what `keras_het.choose` makes of them, and what it finds out.

`python -m benchmarks.demo` runs it, and so does `python -m nox -s demo`. Nothing but the last measurement knows which
labels are wrong.
"""

from benchmarks.demo.data import NOISES
from benchmarks.demo.settings import QUICK, Settings, check_settings
from benchmarks.demo.story import run

__all__ = ["NOISES", "QUICK", "Settings", "check_settings", "run"]
