"""Pure mathematics: tensors in, tensors out; no files, no configuration, no printing."""
