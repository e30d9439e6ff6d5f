"""Parts shared by several methods."""
