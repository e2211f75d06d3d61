"""Callbacks that make training frameworks keep the job contract, one file for each framework.

    from themis.integrations.transformers import ThemisCallback, last_checkpoint
    from themis.integrations.lightning import ThemisCallback, last_checkpoint

They report, save and stop as docs/guides/jobs.md says. A framework is imported when its callback is
made and not before; besides it they need the standard library only.
"""
