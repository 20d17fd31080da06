"""Random heads, hostile configurations and hostile files: `python -m tests.fuzz --minutes 5`, or `nox -s fuzz`."""
