"""What a door needs of the system: sockets that listen, and leave to open files."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import Any

from goldspan.errors import ConfigurationError

FILES_BESIDE = 256
"""Open files of a worker that are no connections over HTTP: journal, store, back ends, gRPC."""
BACKLOG = 2_048
"""Connections that may wait to be taken."""
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""An address that this machine lacks is no fault of the others of its name: `localhost` where there is no IPv6."""


def listen(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host: IPv4, IPv6, or a name; port 0 takes one that is free.

    `::` takes IPv4 as well where the system does that, as gRPC's does. Raises `ConfigurationError`.
    """
    listening: list[socket.socket] = []
    failure: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host!r}: {error}") from None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        if listening and port == 0:
            address = (address[0], listening[0].getsockname()[1], *address[2:])
        try:
            listening.append(_listening(socket.socket(family, kind, protocol), address, reuse_port=reuse_port))
        except OSError as error:
            failure = error
            if error.errno not in _NOT_HERE:
                break
    if listening and (failure is None or failure.errno in _NOT_HERE):
        return listening
    for one in listening:
        one.close()
    raise ConfigurationError(f"cannot listen on {host}, port {port}: {failure}")


def _listening(one: socket.socket, address: tuple[Any, ...], *, reuse_port: bool) -> socket.socket:
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if one.family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        one.bind(address)
        one.listen(BACKLOG)
        one.setblocking(False)
    except OSError:
        one.close()
        raise
    return one


def allow_open_files(wanted: int) -> int:
    """Raise this process's soft limit of open files to what is wanted, as far as the hard one goes; what it is then."""
    try:
        import resource  # not on Windows, where there is no such limit
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):  # some systems have a lower bound of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft
