"""Browsers: login links, and the sessions that begin with them."""

from starlette.responses import RedirectResponse, Response

from themis.security.browser_sessions import (
    clear_cookie,
    cookie_name,
    end_session,
    make_link,
    redeem_link,
    set_cookie,
)
from themis.service.http.context import ApiContext
from themis.service.http.responses import as_json
from themis.service.http.routing import ApiRequest, Data


async def login_link(api: ApiContext, request: ApiRequest) -> Data:
    """A link that logs one browser in as the caller."""
    request.allow(request.subject)
    assert request.identity is not None, "the table of permissions lets no other caller pass"
    code = make_link(api.token_store, request.identity, now=request.wall)
    return {"path": f"/login/{code.reveal()}"}


async def login(api: ApiContext, request: ApiRequest) -> Response:
    """Use up a login link, and begin a session."""
    settings = api.settings
    session = redeem_link(
        api.token_store, request.path("code"), now=request.wall, lifetime=settings.session
    )
    cookie = set_cookie(session, tls=settings.tls, now=request.wall)
    return RedirectResponse("/", 303, {"Set-Cookie": cookie, "Referrer-Policy": "no-referrer"})


async def logout(api: ApiContext, request: ApiRequest) -> Response:
    """End the session of the browser."""
    request.allow(request.subject)
    tls = api.settings.tls
    end_session(api.token_store, request.http.cookies.get(cookie_name(tls=tls)))
    return as_json({"done": True}, headers={"Set-Cookie": clear_cookie(tls=tls)})
