"""Tokens, and the sessions of browsers."""

from starlette.responses import RedirectResponse, Response

from themis.security.browser_sessions import (
    clear_cookie,
    cookie_name,
    end_session,
    make_link,
    redeem_link,
    set_cookie,
)
from themis.security.permissions import decide, token_owner
from themis.security.tokens import (
    Credential,
    Role,
    create_token,
    find,
    revoke_token,
    tokens,
)
from themis.service.http.routes.base import Call, Data, Handlers, as_json


class People(Handlers):
    """Who somebody is, and how they come in."""

    async def list_tokens(self, call: Call) -> Data:
        shown = [
            item
            for item in tokens(self._vault)
            if decide(call.identity, call.endpoint.verb, token_owner(item)).allowed
        ]
        return {"tokens": [_token_line(item) for item in shown]}

    async def create_token(self, call: Call) -> Data:
        self._allow(call)
        body = call.body
        days = body.get("days")
        issued = create_token(
            self._vault,
            Role(body["role"]),
            str(body["subject"]),
            now=call.wall,
            lifetime=None if days is None else float(days) * 86400.0,
            note=str(body.get("note", "")),
        )
        details = {"role": issued.credential.role, "subject": issued.credential.subject}
        self._service.writer.add(audit=self._row(call, issued.credential.id, **details))
        return {**_token_line(issued.credential), "token": issued.token.reveal()}

    async def revoke_token(self, call: Call) -> Data:
        found = find(self._vault, call.path("token"))
        self._allow(call, token_owner(found) if found else None)
        credential = revoke_token(self._vault, call.path("token"), now=call.wall)
        self._service.writer.add(audit=self._row(call, credential.id))
        return _token_line(credential)

    # Browsers

    async def link(self, call: Call) -> Data:
        self._allow(call, call.identity.subject if call.identity else None)
        assert call.identity is not None, "the table lets nobody else pass"
        code = make_link(self._vault, call.identity, now=call.wall)
        return {"path": f"/login/{code.reveal()}"}

    async def login(self, call: Call) -> Response:
        settings = self._settings
        session = redeem_link(
            self._vault, call.path("code"), now=call.wall, lifetime=settings.session
        )
        cookie = set_cookie(session, tls=settings.tls, now=call.wall)
        headers = {"Set-Cookie": cookie, "Referrer-Policy": "no-referrer"}
        return RedirectResponse("/", 303, headers)

    async def logout(self, call: Call) -> Response:
        self._allow(call, call.identity.subject if call.identity else None)
        end_session(self._vault, call.request.cookies.get(cookie_name(tls=self._settings.tls)))
        return as_json({"done": True}, headers={"Set-Cookie": clear_cookie(tls=self._settings.tls)})


def _token_line(item: Credential) -> Data:
    line = {
        "id": item.id,
        "role": item.role,
        "subject": item.subject,
        "created": item.created,
        "expires": item.expires,
        "revoked": item.revoked,
        "used": item.used,
        "note": item.note,
    }
    return dict(line)
