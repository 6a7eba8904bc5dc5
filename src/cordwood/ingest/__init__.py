"""The journey of an event: decode, stamp, shape, queue, store, acknowledge."""
