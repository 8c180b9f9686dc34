"""Serves the page of one store on loopback, for `goldspan view`."""

from __future__ import annotations

import socket
from collections.abc import Callable

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.web.http_routes import SECURITY_HEADERS, page_routes
from goldspan.web.pages import Pages

with require_extra("web"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
_ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
"""What may stand in Host: a page of somebody else whose name suddenly means this machine still sends its own."""
_SHUTDOWN_TIMEOUT_S = 2
"""Seconds that open streams have to end."""


class LocalServer:
    """A server of the page on loopback. Made, it has its port; `serve` answers until Ctrl-C or SIGTERM.

    `port` 0 takes one that is free. Raises `ConfigurationError` for a port that another program has.
    """

    def __init__(self, site: Pages, port: int) -> None:
        self._socket = _listening_socket(port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                asgi_application(site, is_ending=lambda: self._server.should_exit),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
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


def asgi_application(site: Pages, *, is_ending: Callable[[], bool]) -> Starlette:
    """The page as an ASGI application of its own, for callers on this machine."""

    async def elsewhere(request: Request, error: Exception) -> Response:
        answer = site.not_found()
        return Response(answer.body, answer.status, SECURITY_HEADERS, answer.media_type)

    return Starlette(
        routes=page_routes(site, is_ending=is_ending),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=_ALLOWED_HOSTS, www_redirect=False)],
        exception_handlers={404: elsewhere},
    )


def _listening_socket(port: int) -> socket.socket:
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
