"""For operators, beside the processes.

doctor          checks of a machine before something depends on it
host_facts      what the operating system knows, for the doctor
engine_facts    what engines, the driver and the store know, for the doctor
log_format      log lines for people or programs
systemd         tells systemd that the service is ready or stops
"""
