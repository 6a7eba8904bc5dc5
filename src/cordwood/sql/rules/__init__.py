"""The rules that have the same meaning for every engine, composed from the words of an engine's SQL."""
