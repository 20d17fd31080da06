"""
Title: Whether all works on this machine
Description: The command `python -m keras_het doctor`: versions, backend, devices, a training step, and equal numbers.
Seeds: 0
"""

import subprocess
import sys

command = [sys.executable, "-m", "keras_het", "doctor"]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(done.stdout)
