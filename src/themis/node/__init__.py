"""The process `themis node`: runs the jobs of one machine under their leases.

core            decides: events in, commands out                node        carries commands out
run_executor    runs on the engine, with command_queue          run_meter   what runs report
adoption        runs of an earlier start                        reporter    reports to the service
health          GPUs and the shared folder                      logs        parts of logs
disk            the state of the node                           process     configuration, signals
bridge          nodes for machines of another scheduler         local_nodes children of the service
"""
