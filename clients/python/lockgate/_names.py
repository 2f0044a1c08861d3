"""Names of the HTTP API that differ between servers before and after version 1. Everything here accepts both."""

from __future__ import annotations

from typing import Any, Dict, List

from .errors import Loss

#: Codes by which a znode is missing, or exists.
NO_ZNODE = ("no_znode", "no_node")
#: Codes of a route that the server does not know.
NO_ROUTE = ("no_route", "method_not_allowed")
ZNODE_EXISTS = ("node_exists", "znode_exists")

_EVENTS = {"revoke_requested": "release_requested"}


def event(name: str) -> str:
    """Returns the present name of an event of a session."""
    return _EVENTS.get(name, name)


#: Names of the position after which a watch reports changes, in the order in which they are tried.
POSITIONS = ("zxid", "seen_zxid")


def next_page(page: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the parameters of the next page of a list; none after the last one."""
    if page.get("next_cursor") is not None:
        return {"cursor": page["next_cursor"]}
    return {} if page.get("next_after") is None else {"after": page["next_after"]}


def release_requests(news: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Returns the release requests in a heartbeat's answer or in an event `state`."""
    found = news.get("release_requested", news.get("revoke_requested", []))
    return list(found)


def loss(news: Dict[str, Any]) -> Loss:
    """Returns the loss that an event `lost` reports."""
    ended = news["ended"]
    reason = ended if ended in ("broken", "deleted", "released", "max_hold") else "taken_away"
    return Loss(reason, news.get("by"), news.get("reason") or None)
