"""What the service says of itself: its addresses as OpenAPI, its endpoints and streams as its clients know them."""
