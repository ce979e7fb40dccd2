"""The forms on the page of a table: its settings, and the switches of its maintenance. For admins of the table."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, post
from litestar.enums import RequestEncodingType
from litestar.params import Body

from lakebed import settings
from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.security.principal import Permission
from lakebed.service.service import Service
from lakebed.web.pages import rendering
from lakebed.web.pages.form_checks import check_form
from lakebed.web.provided import AnyRequest, PathText, ThePrincipal, TheService, TheTables

Form = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]


@post("/tables/{name:str}/settings", sync_to_thread=True, include_in_schema=False)
def change_settings(
    request: AnyRequest, tables: TheTables, principal: ThePrincipal, name: PathText, data: Form
) -> Response[bytes]:
    """Set what differs from the values that the table has of its own; an empty value takes the instance's again."""
    check_form(request)
    table = tables.table(principal, Permission.ADMIN, name)
    own = table.state().settings
    given = {setting: text.strip() for setting, text in data.items()}
    wanted = settings.validate({setting: text or None for setting, text in given.items()})
    changes = {setting: value for setting, value in wanted.items() if value != own.get(setting)}
    if changes:
        table.set(**changes)
    return rendering.see(rendering.table_link(name) + "#settings")


@post("/tables/{name:str}/switch", sync_to_thread=True, include_in_schema=False)
def switch(
    request: AnyRequest, service: TheService, principal: ThePrincipal, name: PathText, data: Form
) -> Response[bytes]:
    """Pause or resume operations, or take the table offline or back."""
    check_form(request)
    principal.require(Permission.ADMIN, name)
    _switch(service, name, data.get("action", ""), data.get("operation", ""))
    return rendering.see(rendering.table_link(name) + "#maintenance")


def _switch(service: Service, name: str, action: str, operation: str) -> None:
    instance = service.instance
    match action:
        case "pause":
            instance.pause(name, operation)
        case "resume":
            instance.resume(name, operation)
        case "online" | "offline":
            instance.set_online(name, action == "online")
        case _:
            raise Code.ARGUMENT_INVALID(f"action = {shown(action)}: is one of pause, resume, online, offline")


ROUTES = (change_settings, switch)
