"""Model architectures, one per file: plain modules, whose only buffers are BatchNorm's."""
