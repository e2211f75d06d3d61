"""Fit a line with gradient descent: the whole contract with Themis, and nothing to install."""

import argparse
import json
import random
import sys
import time

import themis

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.1, help="seconds, so that there is some work")
options = parser.parse_args()

dice = random.Random(0)
xs = [dice.uniform(-1.0, 1.0) for _ in range(64)]
data = [(x, 3.0 * x + 1.0 + dice.gauss(0.0, 0.1)) for x in xs]
checkpoint = themis.checkpoint_dir() / "state.json"
last = themis.max_iterations(100)

# Go on where the last process stopped.
state = {"iteration": 0, "slope": 0.0, "offset": 0.0}
if checkpoint.exists():
    state = json.loads(checkpoint.read_text())


def save():
    draft = checkpoint.with_suffix(".tmp")
    draft.write_text(json.dumps(state))
    draft.replace(checkpoint)  # never half a checkpoint


while state["iteration"] < last and not themis.should_stop():
    errors = [(state["slope"] * x + state["offset"] - y, x) for x, y in data]
    state["slope"] -= options.lr * 2 * sum(error * x for error, x in errors) / len(data)
    state["offset"] -= options.lr * 2 * sum(error for error, _ in errors) / len(data)
    state["iteration"] += 1
    time.sleep(options.pause)
    themis.report(state["iteration"], sum(error**2 for error, _ in errors) / len(data))
    if themis.checkpoint_due():
        save()

save()
print(f"at iteration {state['iteration']} of {last}")
sys.exit(0 if state["iteration"] >= last else themis.GRACEFUL_EXIT)
