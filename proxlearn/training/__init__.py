"""Training in memory, on scaled arrays: the loop that runs, estimators and the bench share, and selection."""
