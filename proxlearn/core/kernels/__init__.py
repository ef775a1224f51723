"""Forms of the Gibbs kernel Gamma: a whole matrix, tiles of logarithms, tiles of absorbed kernels, or a formula."""
