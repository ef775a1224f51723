"""What else one would train on the same problem, one small module a method."""
