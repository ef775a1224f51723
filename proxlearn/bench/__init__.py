"""The speed of the recursion: this implementation, the paper's algorithms as printed, and a lower bound for torch."""
