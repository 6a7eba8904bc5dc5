"""Descriptions of the service: its routes as OpenAPI, its endpoints and streams for management clients."""
