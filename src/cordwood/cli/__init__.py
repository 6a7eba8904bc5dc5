"""The door for people: one module a command; each parses its arguments and decides nothing."""
