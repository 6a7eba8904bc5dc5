"""Runner of the pages of spec/. It parses cases, runs them on each engine, and compares the results."""
