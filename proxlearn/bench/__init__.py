"""The speed of the recursion: our implementation, the paper's algorithms as printed, and a lower bound for torch."""
