"""A small network in plain PyTorch that learns sin(x), with or without a GPU."""

import argparse
import os
import sys

import torch

import themis

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--width", type=int, default=32)
options = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.linspace(-3.0, 3.0, 256, device=device).unsqueeze(1)
y = torch.sin(x)
model = torch.nn.Sequential(
    torch.nn.Linear(1, options.width), torch.nn.Tanh(), torch.nn.Linear(options.width, 1)
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

checkpoint = themis.checkpoint_dir() / "state.pt"
last = themis.max_iterations(500)

# Go on where the last process stopped.
iteration = 0
if checkpoint.exists():
    state = torch.load(checkpoint, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    iteration = state["iteration"]


def save():
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "iteration": iteration,
    }
    torch.save(state, checkpoint.with_suffix(".tmp"))
    os.replace(checkpoint.with_suffix(".tmp"), checkpoint)  # never half a checkpoint


while iteration < last and not themis.should_stop():
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    iteration += 1
    themis.report(iteration, loss.item())
    if themis.checkpoint_due():
        save()

save()
print(f"at iteration {iteration} of {last}")
sys.exit(0 if iteration >= last else themis.GRACEFUL_EXIT)
