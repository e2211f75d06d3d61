"""DistributedDataParallel on however many GPUs and machines there are this time.

Themis starts this program once on each machine of a job. It starts `worker.py` for each GPU there;
all of them meet at THEMIS_RENDEZVOUS and add up who is where. The next start may have other GPUs on
other machines: the batch of one step stays the same, so the training does too.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

gpus = [name for name in os.environ.get("THEMIS_GPUS", "0").split(",") if name]
worker = str(Path(__file__).with_name("worker.py"))
with socket.create_server(("127.0.0.1", 0)) as free:
    alone = f"127.0.0.1:{free.getsockname()[1]}"
meet = os.environ.get("THEMIS_RENDEZVOUS", alone)  # set where there are other machines
children = []

# Only this process hears that Themis wants its GPUs back.
signal.signal(signal.SIGTERM, lambda *_: [child.terminate() for child in children])
for number in range(len(gpus)):
    environ = os.environ | {"LOCAL_RANK": str(number), "MEET": meet}
    children.append(subprocess.Popen([sys.executable, worker, *sys.argv[1:]], env=environ))
codes = [child.wait() for child in children]
sys.exit(next((code for code in codes if code), 0))
