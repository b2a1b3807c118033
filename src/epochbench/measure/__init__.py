"""How a training is timed: the protocol of one measurement, the worker it runs in, and the race."""
