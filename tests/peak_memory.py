"""Peak resident memory of a new process."""

import os
import subprocess
import sys

# Not ru_maxrss: on Linux a child inherits it from its parent process, and a test session can be large.
PRINT_PEAK = """
import resource, sys
try:
    kibibytes = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
except FileNotFoundError:
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
print(kibibytes / 1024)
"""


def peak_mebibytes_of(code):
    """Returns the peak resident MiB of a new process that runs `code`."""
    # glibc keeps freed blocks of up to 32 MiB, fragmented by chance (PyTorch: 1.1 to 1.9 GiB for one and the same
    # step). With a fixed threshold it gives them back, and the peak is what the step holds. A step that JAX finds
    # compiled would miss the memory of its compilation; and it is optimised as for users.
    as_users = {"JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "XLA_FLAGS": ""}
    environment = {**os.environ, **as_users, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    command = [sys.executable, "-c", code + PRINT_PEAK]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return float(result.stdout.split()[-1])
