"""What ours is held against: the bare engine over our own file, and the incumbent's storage."""
