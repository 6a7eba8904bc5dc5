"""Descriptions of the service: its routes as OpenAPI, and its endpoints and streams for management clients."""
