"""Memory of a training step on one device and on four that share the classes, and the data they exchange.

python -m benchmarks.cost.devices [--quick] [--output FOLDER]

The devices are virtual, on one processor. Memory is what XLA allocates on each device for the compiled step, which does
not run. Every row has a new process. The last table has the result of `keras_het.estimate_cost` for a million classes.
"""

import json

from benchmarks.lib import harness
from benchmarks.lib.results import publish
from tests.distribution.compiled import DEVICES, ENVIRONMENT, measure_row

SIZES, QUICK = {"units": 100_000, "features": 64, "batch": 128}, {"units": 800, "features": 16, "batch": 8}
HEADS = ["diagonal", "parameter_efficient", "latent", "narrow", "low_rank"]
MILLION = {"units": 1_000_000, "features": 512, "batch": 128, "num_samples": 128}  # more nodes: too large a table
MANY = (8, 64, 512)


def estimated(devices, sizes):
    """Returns `{covariance: row}` of `estimate_cost`, with classes that the devices can share."""
    import keras_het

    units = -(-sizes["units"] // devices) * devices
    rows = keras_het.estimate_cost(**{**sizes, "units": units}, devices=devices).rows
    return {row.covariance: vars(row) for row in rows[1:]}


def measured(**row):
    """Returns an estimate, or a measurement."""
    return estimated(**row) if "sizes" in row else measure_row(**row)


def main():
    options = harness.command_line(__doc__, measured).parse_args()
    sizes, peaks = QUICK if options.quick else SIZES, {}
    for covariance in HEADS:
        for devices in DEVICES:
            row = {"covariance": covariance, "devices": devices, **sizes}
            peaks[covariance, devices] = harness.in_fresh_process(__spec__.name, row, **ENVIRONMENT)
            print(covariance, devices, peaks[covariance, devices], flush=True)
    estimates = {
        (devices, units["units"]): harness.in_fresh_process(
            __spec__.name, {"devices": devices, "sizes": units}, **ENVIRONMENT
        )
        for units, numbers in ((sizes, DEVICES), (MILLION, MANY))
        for devices in numbers
    }
    tables = {
        f"MiB of each device, {json.dumps(sizes)}": memory(peaks, estimates, sizes["units"]),
        f"a million classes, GiB of each device, {json.dumps(MILLION)}": million(estimates),
    }
    publish(options.output, "devices", tables, [0], ["jax"], harness.processor())


def memory(peaks, estimates, units):
    """Returns a row for each head: measured (estimated) memory, fraction per device, data that four exchange."""
    rows = [["covariance", *(f"{count} device{'s' * (count > 1)}" for count in DEVICES), "share", "exchanged by four"]]
    for covariance in HEADS:
        one, four = (peaks[covariance, devices]["MiB"] for devices in DEVICES)
        cells = [
            f"{peaks[covariance, devices]['MiB']:.0f} ({bytes_ / 2**20:.0f})"
            for devices, bytes_ in ((count, estimates[count, units][covariance]["train_bytes"]) for count in DEVICES)
        ]
        kinds = peaks[covariance, max(DEVICES)]["exchanged"]
        rows.append([covariance, *cells, f"{four / one:.3f}", ", ".join(sorted(kinds))])
    return rows


def million(estimates):
    """Returns a row for each head: weights, and the memory on each of 8, 64 and 512 devices."""
    units = MILLION["units"]
    rows = [["covariance", "weights", *(f"{devices} devices" for devices in MANY)]]
    for covariance in HEADS:
        cells = [f"{estimates[devices, units][covariance]['train_bytes'] / 2**30:.3g}" for devices in MANY]
        rows.append([covariance, f"{estimates[MANY[0], units][covariance]['parameters'] / 1e9:.3g} billion", *cells])
    return rows


if __name__ == "__main__":
    main()
