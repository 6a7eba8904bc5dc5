"""Tools and resources for AI agents, built on the HTTP API, and the servers of the Model Context Protocol."""
