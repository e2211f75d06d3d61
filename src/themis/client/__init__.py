"""Call a service over HTTP. Standard library only, so a base install has it.

    client = Client("https://themis.lab:7421", token=token, ca="ca.pem")
    app = client.run(["python", "train.py"], gpus=2)["app"]
    client.wait(app)["outcome"]        # "finished"
    client.results(app)["best"]

Methods have the names of the command line's verbs, and return the service's answers: plain data,
which notebooks show as tables. What the service refuses comes back as the errors of
`themis.errors`, in the service's words.

    client      a method for each thing to ask
    connection  calls, retries, TLS, errors
    job_app     the keys of an app file for one job
"""

from themis.client.client import CHUNK, Answer, Client
from themis.client.connection import SERVER
from themis.client.job_app import absolute, job_app

__all__ = ["CHUNK", "SERVER", "Answer", "Client", "absolute", "job_app"]
