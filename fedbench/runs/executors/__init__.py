"""Executors carry out runs: on this machine, on a Ray cluster, or by a launcher of Hydra.

To add a cluster, write a module with a subclass of ``base.Executor`` and add a row to
``options.CLUSTERS``. ``node`` carries out a run on another machine.
"""
