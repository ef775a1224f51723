"""Training in memory, on arrays that are scaled already: the loop that runs and the estimators share, and selection."""
