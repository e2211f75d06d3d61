"""The dashboard: pages for a browser, and the one model of what they show.

    asset("main.js")                       # every file of the pages is in this package
    runs = load_runs([Path("run")])        # finished runs
    runs[0].board(), runs[0].timeline(), runs[0].app("sweep")
    serve(runs, port=0)                    # on this machine only

The live service fills the same model (`themis.service.dashboard.live_model`), so the pages need not
know which of the two they show. Names in the model are untrusted: pages show them only as text.

    model           what the pages show, as values
    finished_run    a run that fills the model; run_builder, sim_runs and run_loader make it
    snapshot_pages  a snapshot that fills it
    arbiter_rows    rows of the model from an arbiter, live or in a snapshot
    round_view      a round for one viewer;  reason_labels  reasons in a word
    app_history     curves from round to round;  timeline_columns  segments as columns
    assets, static  the files of the pages;  local_server  serves them to this machine
"""
