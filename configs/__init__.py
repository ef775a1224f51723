"""The YAML configs as a package, so that the wheel contains them."""
