"""The comparison: all methods on the same splits, cell by cell, and confidence intervals of the differences."""
