"""The comparison: all methods on the same splits, cell by cell, and intervals of the differences."""
