"""The service: the same cores as in the simulator, on real machines and a real clock.

    store = open_store("sqlite:////var/lib/themis/store.sqlite")

So far there is the durable store, `themis.live.store`.
"""
