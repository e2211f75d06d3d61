"""The engine of one machine: each job a process under a supervisor of its own."""
