"""Sources, partitions, and the federated data set built from them."""
