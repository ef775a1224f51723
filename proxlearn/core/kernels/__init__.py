"""Storage of the Gibbs kernel Gamma: as a whole matrix, in tiles that are rebuilt, absorbed, or as a formula."""
