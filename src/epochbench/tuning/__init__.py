"""The fastest way to train a workload on one device: the search for it, and the choice that is kept."""
