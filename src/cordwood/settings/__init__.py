"""What an operator may choose: one frozen struct of sections, and where each value came from."""
