"""Tokens: listed, created, revoked."""

from themis.security.permissions import token_owner
from themis.security.tokens import (
    Credential,
    all_credentials,
    create_token,
    find_credential,
    revoke_token,
)
from themis.service.http.bodies import NewToken
from themis.service.http.context import ApiContext
from themis.service.http.routing import ApiRequest, Data


async def list_tokens(api: ApiContext, request: ApiRequest) -> Data:
    """The tokens that the caller may see, without their secrets."""
    return {
        "tokens": [
            _row(item)
            for item in all_credentials(api.token_store)
            if request.decide(token_owner(item)).allowed
        ]
    }


async def create(api: ApiContext, request: ApiRequest) -> Data:
    """A new token; only this answer has its secret."""
    request.allow()
    body: NewToken = request.body
    issued = create_token(
        api.token_store,
        body.role,
        body.subject,
        now=request.wall,
        lifetime=None if body.days is None else body.days * 86400.0,
        note=body.note,
    )
    made = issued.credential
    api.write_audit(request.audit_row(made.id, role=made.role, subject=made.subject))
    return {**_row(made), "token": issued.token.reveal()}


async def revoke(api: ApiContext, request: ApiRequest) -> Data:
    """End a token for good."""
    found = find_credential(api.token_store, request.path("token"))
    request.allow(token_owner(found) if found else None)
    credential = revoke_token(api.token_store, request.path("token"), now=request.wall)
    api.write_audit(request.audit_row(credential.id))
    return _row(credential)


def _row(item: Credential) -> Data:
    return {
        "id": item.id,
        "role": item.role,
        "subject": item.subject,
        "created": item.created,
        "expires": item.expires,
        "revoked": item.revoked,
        "used": item.used,
        "note": item.note,
    }
