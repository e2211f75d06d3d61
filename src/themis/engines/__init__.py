"""How training processes are started, watched and killed on machines.

    engine = await LocalEngine.open(state, Pretend("m0", slots=(2, 2)), owners)
    await engine.start(Task("job-1", "ann", 7, (0, 1), ("python", "train.py"), end=now() + 600))
    async for event in engine.watch(): ...      # Started, Exited, CouldNotKill

Import from the modules: this file stays empty, because every job's supervisor imports it, and what
the supervisor imports (clock, pages, libc, processes, cgroups, control, deadlines, logs, launch) is
paid by every start of a job. Those modules use the light half of the standard library only, and
plain classes where the rest of Themis has dataclasses, whose import takes longer than the fork.
"""
