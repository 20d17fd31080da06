"""Watches code that reads hostile data: it may run, write and connect nothing, and takes little memory and time."""

import contextlib
import functools
import os
import pathlib
import sys
import time

RUNS_CODE = (
    "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pickle.find_class", "marshal.loads", "subprocess.Popen",
    "socket.connect", "socket.getaddrinfo",
)  # fmt: skip
MOVES_FILES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Watch:
    """What Python's audit events say of the guarded code; one hook, which cannot be removed, serves all guards."""

    allowed, found = None, ()

    def __call__(self, event, arguments):
        if self.allowed is None:
            return
        runs = event in RUNS_CODE and not _of_an_import(event)
        changes = event in MOVES_FILES or (event == "open" and _writes(arguments))
        if runs or (changes and not self._may_write(_whole_path(event, arguments))):
            self.found.append(f"{event} {arguments[:2]}")

    def _may_write(self, path):
        if not isinstance(path, str | bytes | os.PathLike):  # a descriptor of a file that was opened before
            return True
        path = pathlib.Path(os.fsdecode(path)).resolve()
        return any(map(path.is_relative_to, (self.allowed, "/dev", os.getenv("JAX_COMPILATION_CACHE_DIR", "/dev"))))


WATCH = _Watch()
install = functools.cache(lambda: sys.addaudithook(WATCH))


def _whole_path(event, arguments):
    """The path of an event; in `shutil.rmtree` it is relative to an open folder."""
    path, folder = arguments[0], arguments[-1]
    if event == "open" or not isinstance(folder, int) or folder < 0 or not isinstance(path, str):
        return path
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)


def _of_an_import(event):
    """Whether Python itself reads the compiled file of a module."""
    return event == "marshal.loads" and sys._getframe(2).f_code.co_filename.startswith("<frozen importlib")


def _writes(arguments):
    _, mode, flags = arguments
    return any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & WRITES)


@contextlib.contextmanager
def guarded(allowed, megabytes=512, seconds=20):
    """Raises an AssertionError if the code below it runs anything, writes outside a folder, or takes too much.

    Code that waits takes no seconds of a processor: pytest's `faulthandler_timeout` prints where it is.
    """
    install()
    before, start = _reset_peak(), time.process_time()
    WATCH.allowed, WATCH.found = pathlib.Path(allowed).resolve(), []
    try:
        yield
    finally:
        WATCH.allowed = None
        taken, grown = time.process_time() - start, (_memory("VmHWM") - before) / 1024
        assert not WATCH.found, f"the code ran or changed something: {WATCH.found}"
        assert grown < megabytes, f"the code took {grown:.0f} MiB"
        assert taken < seconds, f"the code took {taken:.1f} s"


def _reset_peak():
    """Begins a new measurement of the largest resident memory; returns the memory now, in KiB."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
