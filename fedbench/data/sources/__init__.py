"""Data sources, one per file: a function that returns ``Examples``.

In addition to its options, a source may have the arguments ``data_dir``, ``seed``, ``download`` and
``feature_dtype``. ``FILES`` lists its published files, for ``fedbench data verify`` and for plans.
docs/data.md states the origin of every address.
"""
