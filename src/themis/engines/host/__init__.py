"""What engines ask of the machine itself: GPUs, accounts, boot time, threads."""
