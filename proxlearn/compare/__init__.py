"""The bench: every method on the same splits, cell by cell, and what may be said of the differences."""
