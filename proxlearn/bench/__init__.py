"""The speed of the recursion: ours, the paper's algorithms as printed, and a lower bound for torch."""
