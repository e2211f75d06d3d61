"""The dashboard: pages for a browser, and the one model of what they show.

    asset("main.js")                       # every file of the pages is in this package
    recording = open_run(Path("run"))      # a finished run
    recording.board(), recording.timeline(), recording.app("sweep")
    serve([recording], port=0)             # on this machine only

The live service fills the same model (`themis.service.dashboard.live_model`), so the pages do not
know which of the two they show. Names in the model are untrusted: pages show them as text and as
nothing else.
"""
