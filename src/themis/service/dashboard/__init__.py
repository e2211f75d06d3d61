"""The dashboard of a live service, with the model of `themis.dashboard`.

    live_model      apps, machines and rounds, redacted for each viewer
    gpu_timeline    which app held which GPU, as JSON;  page_history  the past that pages show
    change_feed     wakes the streams of open pages
    stored_model    the past from a store, without the service

What a viewer may not see is taken out by `themis.service.viewer`.
"""
