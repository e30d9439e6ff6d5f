"""Data sources: functions that return ``Examples``, one per file.

In addition to its options, a source may take the arguments ``data_dir``, ``seed``, ``download`` and
``feature_dtype``. ``FILES`` lists its published files, for ``fedbench data verify`` and for plans.
docs/data.md states the origin of every address.
"""
