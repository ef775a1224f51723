"""How fast the recursion is here: ours, the paper's algorithms as printed, and the least that torch could take."""
