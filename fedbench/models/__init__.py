"""One architecture per file: plain modules without buffers."""
