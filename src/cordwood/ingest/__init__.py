"""The ingest path: decode, stamp, transform, infer the shape, store durably, acknowledge."""
