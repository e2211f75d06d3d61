"""How training processes are started, watched and killed on machines.

    engine = await LocalEngine.open(state, PretendGpus("m0", slots=(2, 2)), owners)
    await engine.start(Task("job-1", "ann", 7, (0, 1), ("python", "train.py"), end=now() + 600))
    async for event in engine.watch(): ...      # ProgramStarted, ProgramExited, CouldNotKill

base        the interface of engines            local, slurm, ray       the engines
task        the task, which is also task.json   remote                  shared by slurm and ray
attempt     one start of a job on disk          common                  shared by all engines
supervisor  the process that holds a lease      metrics                 readers of samples
host        GPUs, accounts and clock of a machine

This file imports nothing, because every supervisor imports it, and every start of a job waits for
the supervisor. `supervisor` and the modules that it uses import a light part of the standard
library only, and have plain classes, because importing `dataclasses` takes longer than a fork.
"""
