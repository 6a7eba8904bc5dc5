"""The ingest path: decode a body, build and transform its events, infer their shape, store them, and acknowledge."""
