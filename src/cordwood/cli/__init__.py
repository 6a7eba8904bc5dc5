"""The command line: one module for each command, which parses its arguments and calls the service."""
