"""Where a run's metrics go besides metrics.csv, for those who keep theirs in TensorBoard or MLflow already."""
