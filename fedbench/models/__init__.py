"""Model architectures, one per file: plain modules without buffers."""
