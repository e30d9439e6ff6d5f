"""Files of data sets: download, archives, verification, prepared arrays."""
