"""Flows with known solutions, with which the recursion is compared."""
