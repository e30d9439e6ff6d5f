"""One data set per file: a function that returns ``Examples``.

Besides its options a source may have the arguments ``data_dir``, ``seed``, ``download`` and
``feature_dtype``. ``FILES`` lists its published files, for ``fedbench data verify`` and for plans.
docs/data.md says where every address is named.
"""
