"""The OpenAPI document: the table of routes, for programs."""

import re
from collections.abc import Iterable
from typing import Any

from themis import __version__
from themis.recording.validation import Validator
from themis.service.http.routing import Route


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    routes = tuple(routes)
    bodies = [item.body for item in routes if item.body is not None]
    schemas, components = Validator.component_schemas(bodies, "#/components/schemas")
    for item in routes:
        operation: dict[str, Any] = {
            "summary": item.summary,
            "x-themis-verb": str(item.verb),
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", item.path)
            ]
            + [{"name": each.name, "in": "query", "schema": each.schema} for each in item.query],
            "responses": {
                "200": {"description": "Done", "content": {str(item.kind): {}}},
                "default": {
                    "description": "Refused",
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                    },
                },
            },
        }
        if item.body is not None:
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": schemas[bodies.index(item.body)]}},
            }
        paths.setdefault(item.path, {})[item.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Themis", "version": __version__},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": components
            | {
                "Problem": {
                    "type": "object",
                    "required": ["error", "who", "reason"],
                    "properties": {
                        name: {"type": "string"} for name in ("error", "who", "reason", "reference")
                    },
                }
            },
        },
    }
