"""The methods that `proxlearn compare` compares, and the code that several of these methods use."""
