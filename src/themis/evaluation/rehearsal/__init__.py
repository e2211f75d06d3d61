"""The live system in virtual time with pretend jobs, to compare it with the simulator."""
