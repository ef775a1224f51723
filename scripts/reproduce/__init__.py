"""The paper's tables and figures: which runs they need, and how each is made from them."""
