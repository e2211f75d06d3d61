"""The service itself."""

from starlette.responses import Response

from themis import __version__
from themis.security.browser_sessions import cookie_name, csrf_of
from themis.service.http import openapi
from themis.service.http.routes.base import SAFE, Call, Data, Handlers
from themis.service.http.routes.endpoints import ENDPOINTS
from themis.service.prometheus import CONTENT_TYPE


class AboutRoutes(Handlers):
    """What anybody may know, and who they are."""

    async def health(self, _: Call) -> Data:
        return {"alive": True}

    async def ready(self, _: Call) -> Data:
        await self._service.settled()
        return {"ready": True}

    async def describe(self, _: Call) -> Data:
        return openapi.document(ENDPOINTS)

    async def metrics(self, call: Call) -> Response:
        named = not self._allow(call)
        page = self._service.metrics.text(named=named)
        return Response(page, headers={**SAFE, "Content-Type": CONTENT_TYPE})

    async def about(self, _: Call) -> Data:
        return {
            "version": __version__,
            "epoch": self._service.steward.epoch,
            "grpc_port": self._settings.grpc_port,
        }

    async def whoami(self, call: Call) -> Data:
        self._allow(call, call.identity.subject if call.identity else None)
        identity = call.identity
        assert identity is not None, "the table lets nobody else pass"
        told: Data = {"role": identity.role, "subject": identity.subject}
        cookie = call.request.cookies.get(cookie_name(tls=self._settings.tls))
        if cookie is not None and "authorization" not in call.request.headers:
            told["csrf"] = csrf_of(cookie).reveal()
        return told
