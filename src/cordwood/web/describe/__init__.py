"""Descriptions of the service: its routes as OpenAPI, and its endpoints and streams in Logflare's format."""
