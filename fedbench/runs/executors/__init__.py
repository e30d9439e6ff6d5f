"""Where runs are carried out: on this machine, on a Ray cluster, or by a launcher of Hydra such as that for SLURM.

A further cluster is one more file with a class that has the methods of ``base.Executor``.
"""
