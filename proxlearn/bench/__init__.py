"""Benchmarks of the recursion, of the paper's algorithms as printed, and of a lower bound for the time with torch."""
