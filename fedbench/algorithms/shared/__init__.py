"""Parts of several methods."""
