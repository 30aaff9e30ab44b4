"""Benchmarks, a subcommand of `scripts/benchmark.py` a module."""
