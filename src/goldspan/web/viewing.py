"""The page of one store, for whoever sits at this machine: `goldspan view`."""

from __future__ import annotations

import socket
from collections.abc import Callable

from goldspan.errors import ConfigurationError
from goldspan.web.extra import needed
from goldspan.web.routing import HEADERS, routes
from goldspan.web.site import Site

with needed():
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
_NAMES = ["localhost", "127.0.0.1", "[::1]"]
"""What may stand in Host: a page of somebody else whose name suddenly means this machine still sends its own."""
_LAST = 2
"""Seconds that open streams have to end."""


class Viewer:
    """A server of the page on loopback. Made, it has its port; `serve` answers until Ctrl-C or SIGTERM.

    `port` 0 takes one that is free. Raises `ConfigurationError` for a port that another program has.
    """

    def __init__(self, site: Site, port: int) -> None:
        self._socket = _listening(port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(site, ends=lambda: self._server.should_exit),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=_LAST,
            )
        )

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self._socket.getsockname()[1]}/"

    def serve(self) -> None:
        """Answer until somebody ends it."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Have `serve`, in another thread, come to its end."""
        self._server.should_exit = True


def application(site: Site, *, ends: Callable[[], bool]) -> Starlette:
    """The page as an ASGI application of its own, for callers on this machine."""

    async def elsewhere(request: Request, error: Exception) -> Response:
        answer = site.missing()
        return Response(answer.body, answer.status, HEADERS, answer.media)

    return Starlette(
        routes=routes(site, ends=ends),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=_NAMES, www_redirect=False)],
        exception_handlers={404: elsewhere},
    )


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind((HOST, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"port {port} cannot be used ({error.strerror}); name another with --port, or 0 for one that is free"
        ) from None
    return listener
