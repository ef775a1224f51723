"""Comparison of all methods on the same data splits, with confidence intervals for the differences."""
