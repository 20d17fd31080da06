"""Results that an earlier commit made: their benchmarks are no longer in the repository."""

from benchmarks.lib import results

COMMIT = "7881e38"  # the last commit with every benchmark


def removed(of):
    """The result files whose benchmark was removed, and its module at `COMMIT`."""
    runs = {path.stem: results.read(path) for path in sorted(results.FOLDER.glob("*.json"))}
    rows = [[f"[{name}](results/{name}.md)", f"`{run.module()}`"] for name, run in runs.items() if not run.can_run()]
    return [["result", f"module at commit `{COMMIT}`"], *rows]
