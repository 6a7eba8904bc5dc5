"""Trials of endpoints: pages that say what is given and what must be answered, and what became of them."""
