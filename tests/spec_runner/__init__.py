"""Runner of the pages of spec/: parses cases, runs them on each engine, and compares the results."""
