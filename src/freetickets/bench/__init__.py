"""Benchmarks: ratios of two sides measured in one run, never a time alone."""
