"""The simulated upstream: strict, scripted, its answers a pure function of the context it holds."""
