"""What a trained cloud says of new rows; shared by the commands, the views and the estimators."""
