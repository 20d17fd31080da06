"""Draws the picture of trainings that nothing stops: clean accuracy by epoch, from the result file of `real.heads`.

python docs/figures/curves.py
"""

import json
import pathlib

import matplotlib.pyplot as plt

HERE = pathlib.Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "real_heads.json"
LAYERS = {"Dense from zeros": ("Dense", "tab:gray"), "full from zeros": ("head", "tab:blue")}

head, *rows = json.loads(RESULTS.read_text())["tables"]["frozen CIFAR-10N worst 5000, accuracy by epoch"]
epochs = list(map(int, head[2:]))
rows = [row for row in rows if row[0] in LAYERS]
rates = sorted({float(row[1]) for row in rows if float(row[1]) < 0.01})  # with larger ones, both fall at once
figure, panels = plt.subplots(1, len(rates), figsize=(8.4, 2.6), layout="constrained", sharey=True)
for panel, rate in zip(panels, rates, strict=True):
    for row in rows:
        if float(row[1]) == rate:
            name, color = LAYERS[row[0]]
            panel.plot(epochs, list(map(float, row[2:])), color=color, label=name)
    panel.set(title=f"rate {rate:g}", xlabel="epochs")
    panel.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("clean accuracy")
panels[0].legend(frameon=False, loc="lower right")
figure.savefig(HERE / "curves.png", dpi=100)
