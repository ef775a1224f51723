"""Functions that predict targets of new rows with a trained cloud, for the commands, the views and the estimators."""
