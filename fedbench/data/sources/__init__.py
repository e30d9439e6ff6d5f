"""One data set per file: a function (data_dir, seed, ...) -> Examples."""
