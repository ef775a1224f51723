"""Predictions for new rows from a trained cloud; used by the commands, the views and the estimators."""
