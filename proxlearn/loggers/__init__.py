"""Loggers that copy a run's metrics to TensorBoard or MLflow; metrics.csv is always written."""
