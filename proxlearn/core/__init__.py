"""The mathematics of the method, as functions of tensors that read no files or configuration and print nothing."""
