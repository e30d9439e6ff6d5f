"""Benchmarks: settings on which methods are tuned alike and compared, and their published runs."""
