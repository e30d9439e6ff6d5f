"""Files of data sets: downloads, archives, verification and cached arrays."""
