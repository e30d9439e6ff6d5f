"""The vocabulary shared by all other packages.

It comprises types, the record that defines a method, optimizers, randomness, validation and files.
"""
