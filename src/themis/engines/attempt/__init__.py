"""One start of a job on disk: its folder, record files, lease and checkpoints."""
