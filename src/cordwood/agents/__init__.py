"""Tools and resources for AI agents, and the servers that offer them by the Model Context Protocol."""
