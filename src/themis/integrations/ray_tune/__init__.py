"""Ray Tune under Themis: the trials of a `Tuner(...)` run on leased GPUs.

    from themis.integrations.ray_tune import ThemisScheduler

    config = tune.TuneConfig(scheduler=ThemisScheduler(ASHAScheduler()))
    tuner = tune.Tuner(train, tune_config=config)

Each trial is a job of an app, each lease of it a Ray node that joins the script's Ray for as long
as the lease lasts (`seat`). docs/guides/ray-tune.md is for users, docs/decisions/0047 says why.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from themis.integrations.ray_tune.scheduler import ThemisScheduler

__all__ = ["ThemisScheduler"]


def __getattr__(name: str) -> object:
    # Late: the process in a lease imports this package too, and needs neither Ray nor a client.
    if name == "ThemisScheduler":
        from themis.integrations.ray_tune.scheduler import ThemisScheduler  # noqa: PLC0415 - see above

        return ThemisScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
