"""A TCP proxy between a client and a PostgreSQL server, which cuts the connection at a chosen message."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Forwards connections, counts the messages of the clients, and cuts all connections at one of them.

    A message counts if the client waits for its answer: a simple query, or the synchronization after other messages.
    At a cut, the server may or may not have done what the message asks for: both are tried.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.messages = 0
        self.cuts = 0
        self.cut_at: int | None = None
        """The number of the message at which connections are cut."""
        self.is_delivered = False
        """Whether the server still gets that message, and only its answer is lost."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections now."""
        with self._lock:
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                with self._lock:
                    self._open += [client, server]
                threading.Thread(target=self._forward_messages, args=(client, server), daemon=True).start()
                threading.Thread(target=self._forward_answers, args=(server, client), daemon=True).start()

    def _forward_answers(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65536):
                target.sendall(content)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _forward_messages(self, client: socket.socket, server: socket.socket) -> None:
        """Forward whole messages: one byte for the kind, except in the first ones, then the length."""
        rest = b""
        has_started = False
        with suppress(OSError):
            while content := client.recv(65536):
                rest += content
                while True:
                    header = 1 if has_started else 0
                    if len(rest) < header + 4:
                        break
                    size = header + int.from_bytes(rest[header : header + 4], "big")
                    if len(rest) < size:
                        break
                    message, rest = rest[:size], rest[size:]
                    is_request = not has_started and message[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30")
                    has_started = has_started or not is_request  # requests of encryption precede the start
                    if not self._pass(message, server, counts=header == 1 and message[:1] in (b"Q", b"S")):
                        return
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _pass(self, message: bytes, server: socket.socket, *, counts: bool) -> bool:
        with self._lock:
            self.messages += counts
            is_cut = counts and self.messages == self.cut_at
            self.cuts += is_cut
        if not is_cut or self.is_delivered:
            server.sendall(message)
        if is_cut:
            if self.is_delivered:
                _wait_for_answer(server)
            self.cut()
        return not is_cut


def _wait_for_answer(server: socket.socket) -> None:
    """Wait until the server has done what it was asked for: a moment suffices, because no answer is read here."""
    threading.Event().wait(0.02)
