"""Implementations of the Gibbs kernel Gamma: one matrix, tiles of logarithms, absorbed tiles, or a formula."""
