"""What operators need beside the processes: doctor, log format, systemd."""
