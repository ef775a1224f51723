"""Loggers that copy the metrics of a run to TensorBoard, MLflow or Weights & Biases; metrics.csv is always written."""
