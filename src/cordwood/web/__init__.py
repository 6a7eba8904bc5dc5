"""The HTTP layer: routes, requests, answer formats, and errors as problem documents."""
