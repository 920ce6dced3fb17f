"""Benchmarks: ``python -m bench.NAME [--json FILE]``. Ratios against a limit measured in the same run."""
