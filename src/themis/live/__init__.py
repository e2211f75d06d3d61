"""The live service: the same cores as the simulator, on real machines."""
