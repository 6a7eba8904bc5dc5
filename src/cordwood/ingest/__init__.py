"""The ingest path: decode a request body, build and transform its events, infer their shape, and store them."""
