"""The domain objects: frozen, typed, without I/O."""
