"""Ray Tune under Themis: the trials of a `Tuner(...)` run on leased GPUs.

    from themis.integrations.ray_tune import ThemisScheduler

    config = tune.TuneConfig(scheduler=ThemisScheduler(ASHAScheduler()))
    tuner = tune.Tuner(train, tune_config=config)

Each trial is a job of an app. Each lease runs a *trial node*: a Ray node that joins the script's
Ray for as long as the lease lasts. docs/guides/ray-tune.md is for users, decisions/0047 says why.

`scheduler` is what users write; `script_run` moves Tune's trials, by the rules in `trial_rules`.
`script_app` makes the app file and `script_agent` runs its agent, in a thread. `trial_node` is the
process in a lease, and `trial_node_server` what it calls in the script.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from themis.integrations.ray_tune.scheduler import ThemisScheduler

__all__ = ["ThemisScheduler"]


def __getattr__(name: str) -> object:
    # Late: a trial node imports this package too, and needs neither Ray Tune nor a client.
    if name == "ThemisScheduler":
        from themis.integrations.ray_tune.scheduler import ThemisScheduler  # noqa: PLC0415 - see above

        return ThemisScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
