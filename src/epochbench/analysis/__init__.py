"""What the records mean: speedups, projections, parity. Reads frames, never devices; loads no torch."""
