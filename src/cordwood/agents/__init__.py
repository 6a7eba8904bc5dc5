"""What AI agents are offered: tools and resources over the routes of HTTP, and the servers of the Model Context Protocol."""
