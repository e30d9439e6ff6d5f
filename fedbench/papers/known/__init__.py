"""Known numbers: what other groups have published of public benchmarks, and the runs that should repeat it."""
