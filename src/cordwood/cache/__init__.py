"""Where finished answers are kept."""
