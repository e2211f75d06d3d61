"""The parts of `themis demo`: a service, six nodes, and three tenants that really train.

- `demo_cluster`: starts service and nodes, and ends them;
- `tenants`: the sweeps; `observer`: submits them and watches; `summary`: what came of them;
- `train`, `toy_models`: the training program, of which jobs get a copy;
- `training_program`: that copy, and a Python that can run it;
- `cleanup_process`: ends everything when the demo itself is killed.
"""
