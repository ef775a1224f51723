"""Training on scaled arrays in memory: selection, and the training loop of runs, estimators and the bench."""
