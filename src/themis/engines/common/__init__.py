"""What all engines share whose supervisors are reached through files."""
