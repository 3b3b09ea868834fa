"""Benchmarks against other tools, as ratios within one run: `python -m benchmarks.NAME [--quick] --json FILE`."""
