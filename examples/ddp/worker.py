"""One process of DistributedDataParallel, on one GPU; `train.py` starts it."""

import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import themis

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step, to watch it")
options = parser.parse_args()

gpus = [name for name in os.environ.get("THEMIS_GPUS", "0").split(",") if name]
machine = int(os.environ.get("THEMIS_RANK", "0"))
machines = int(os.environ.get("THEMIS_WORLD_SIZE", "1"))

themis.should_stop()  # note SIGTERM from now on

# Meet. The store is with the first process of all; each machine says there how many it has.
host, _, port = os.environ["MEET"].rpartition(":")
local = int(os.environ["LOCAL_RANK"])
first = machine == 0 and local == 0
store = dist.TCPStore(host, int(port), None, first, timedelta(minutes=10), wait_for_workers=False)
store.set(f"gpus/{machine}", str(len(gpus)))
counts = [int(store.get(f"gpus/{number}")) for number in range(machines)]
rank, world = sum(counts[:machine]) + local, sum(counts)
cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=world)
device = torch.device("cuda", local) if cuda else torch.device("cpu")

torch.manual_seed(0)
x = torch.linspace(-3.0, 3.0, 256, device=device).unsqueeze(1)
mine = x[rank::world]  # equal parts, so the mean of all is the mean of the batch
model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
model = torch.nn.parallel.DistributedDataParallel(model.to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

checkpoint = themis.checkpoint_dir() / "state.pt"
last = themis.max_iterations(200)
iteration, error = 0, None
if checkpoint.exists():
    state = torch.load(checkpoint, map_location=device)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    iteration, error = state["iteration"], state["error"]


def save():
    if rank == 0:
        state = {
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "iteration": iteration,
            "error": error,
        }
        torch.save(state, checkpoint.with_suffix(".tmp"))
        os.replace(checkpoint.with_suffix(".tmp"), checkpoint)  # never half a checkpoint


def wanted():
    """What any of us was told, all of us do, after the same step: stop, or save."""
    told = [int(themis.should_stop()), int(themis.checkpoint_due())]
    told = torch.tensor(told, device=device)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return bool(told[0]), bool(told[1])


if rank == 0:
    print(f"{world} processes on {machines} machines, from iteration {iteration} on", flush=True)
    if iteration >= last:
        themis.report(iteration, error)  # nothing left to do, and nobody may know

stop = False
while iteration < last and not stop:
    loss = torch.nn.functional.mse_loss(model(mine), torch.sin(mine))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    iteration, error = iteration + 1, mean.item() / world
    if rank == 0:
        themis.report(iteration, error)
    stop, due = wanted()
    if due:
        save()
    time.sleep(options.pause)

save()
dist.destroy_process_group()
sys.exit(0 if iteration >= last else themis.GRACEFUL_EXIT)
