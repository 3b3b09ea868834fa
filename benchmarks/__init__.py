"""Side-by-side measurements, as ratios within one run. Run with `python -m benchmarks.NAME [--quick] --json FILE`."""
