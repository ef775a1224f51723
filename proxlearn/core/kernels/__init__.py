"""How the Gibbs kernel Gamma is held: whole, in tiles that are rebuilt, absorbed, or as a formula."""
