"""The parts of `themis demo`: a service, six nodes, and three tenants that really train.

    with Session.open(folder) as session:
        watch = Watch(session)
        ...

`train` and `models` are the training program; jobs get a copy of it that anybody may read.
"""
