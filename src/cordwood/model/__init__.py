"""The nouns of the product, one a file: frozen, typed, without I/O."""
