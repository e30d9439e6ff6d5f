"""Executors, which execute runs on this machine, on a Ray cluster or through a Hydra launcher.

To add a cluster, write a module with a subclass of ``base.Executor`` and add an entry to
``options.CLUSTERS``. The module ``node`` executes a run on another machine.
"""
