"""The routes of the service over HTTP, as its table of endpoints and of access have them."""

from dataclasses import MISSING, fields

from themis.security.permissions import TABLE, Access, Verb
from themis.security.tokens import Role
from themis.service.http.routes.table import ROUTES
from themis.service.http.routing import Route


def routes() -> str:
    """Every route: who may, what it takes, what it does."""
    head = ["| method | path | verb | who | query or body | what |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(_row(item) for item in ROUTES), ""])


def who(verb: Verb) -> str:
    """Who may."""
    if TABLE[verb, None, False] is Access.ALLOW:
        return "everybody"
    told = []
    for role in Role:
        own, others = (TABLE[verb, role, mine] for mine in (True, False))
        if others is Access.ALLOW:
            told.append(str(role))
        elif others is Access.ANONYMOUS:
            told.append(f"{role} (sealed)")
        elif own is not Access.DENY:
            told.append(f"{role} (own)")
    return ", ".join(told)


def _row(item: Route) -> str:
    cells = (
        item.method,
        f"`{item.path}`",
        f"`{item.verb}`",
        who(item.verb),
        _takes(item),
        item.summary,
    )
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _takes(item: Route) -> str:
    told = [f"`?{each.name}=`" for each in item.query]
    if item.body:
        keys = fields(item.body.kind)
        told += [f"`{each.name}`" for each in keys if each.default is MISSING]
        told += [f"`{each.name}`?" for each in keys if each.default is not MISSING]
    return ", ".join(told)
