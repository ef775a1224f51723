"""Methods that proxlearn is compared with, one module per method."""
