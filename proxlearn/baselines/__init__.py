"""Methods with which proxlearn is compared, one module per method."""
