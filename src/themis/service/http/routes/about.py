"""The service itself: alive, ready, its version, its metrics; and who the caller is."""

from starlette.responses import Response

from themis import __version__
from themis.security.browser_sessions import cookie_name, csrf_of
from themis.service.http.context import ApiContext
from themis.service.http.responses import SAFE
from themis.service.http.routing import ApiRequest, Data
from themis.service.prometheus import CONTENT_TYPE


async def health(_api: ApiContext, _: ApiRequest) -> Data:
    """Whether the process answers."""
    return {"alive": True}


async def ready(api: ApiContext, _: ApiRequest) -> Data:
    """Whether the service can store what it decides."""
    await api.service.queue.settled()
    return {"ready": True}


async def metrics(api: ApiContext, request: ApiRequest) -> Response:
    """The page for Prometheus."""
    named = not request.allow()
    page = api.service.metrics.text(named=named)
    return Response(page, headers={**SAFE, "Content-Type": CONTENT_TYPE})


async def about(api: ApiContext, _: ApiRequest) -> Data:
    """Version and epoch of the service, and the port that agents call."""
    return {
        "version": __version__,
        "epoch": api.service.steward.epoch,
        "grpc_port": api.settings.grpc_port,
    }


async def whoami(api: ApiContext, request: ApiRequest) -> Data:
    """Role and subject of the caller; for a browser also what its writes must bring along."""
    request.allow(request.subject)
    assert request.identity is not None, "the table of permissions lets no other caller pass"
    answer: Data = {"role": request.identity.role, "subject": request.identity.subject}
    cookie = request.http.cookies.get(cookie_name(tls=api.settings.tls))
    if cookie is not None and "authorization" not in request.http.headers:
        answer["csrf"] = csrf_of(cookie).reveal()
    return answer
