"""Training in memory, on scaled arrays: selection, and the loop shared by runs, estimators and the bench."""
