"""Flows with known solutions, to which the recursion is compared."""
