"""The domain objects: frozen, typed data structures without I/O."""
