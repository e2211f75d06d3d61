"""What `themis demo` puts on a stage: a service, six nodes, and three tenants who train for real.

    with Session.open(folder) as session:
        watch = Watch(session)
        ...

`train` and `models` are the training program; jobs get a copy of it that anybody may read.
"""
