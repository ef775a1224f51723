"""Functions that predict new rows with a trained cloud, for the commands, the views and the estimators."""
