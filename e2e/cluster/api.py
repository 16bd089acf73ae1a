"""A small client of the API server, for what the harness asks often; kubectl takes 100 ms a call."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from typing import Any

from .certificates import ADMIN, AUTHORITY
from .network import Network

# How long a server that was started anew may take until it knows all objects, in seconds.
_INITIALIZING = 30


class ApiError(Exception):
    """The API server's refusal."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """Requests as cluster administrator, on one kept connection per thread."""

    def __init__(self, network: Network) -> None:
        self._address = network.api
        self._local = threading.local()

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: object) -> Any:
        return self.request("POST", path, body)

    def patch(self, path: str, body: object, kind: str = "application/merge-patch+json") -> Any:
        return self.request("PATCH", path, body, kind)

    def delete(self, path: str, body: object | None = None) -> Any:
        return self.request("DELETE", path, body)

    def request(self, method: str, path: str, body: object | None = None, kind: str = "application/json") -> Any:
        """A read is repeated once: a kept connection does not survive a restart of the server. One that comes before the server
        has listed what is asked for is repeated while it says so, as every client of Kubernetes does."""
        end = time.monotonic() + _INITIALIZING
        broken = 0
        while True:
            try:
                return self._once(method, path, body, kind)
            except (OSError, http.client.HTTPException):
                broken += 1
                if method != "GET" or broken > 1:
                    raise
            except ApiError as error:
                if method != "GET" or error.status != 429 or time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def _once(self, method: str, path: str, body: object | None, kind: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, path, data, {"Accept": "application/json", "Content-Type": kind})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._local.connection = None
            connection.close()
            raise
        if response.status >= 400:
            raise _error(response.status, content)
        try:
            return json.loads(content)
        except ValueError:
            return content.decode(errors="replace")

    def ready(self) -> bool:
        try:
            return bool(self.request("GET", "/readyz") == "ok")
        except (OSError, http.client.HTTPException, ApiError):
            return False

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            context = ssl.create_default_context(cafile=str(AUTHORITY))
            context.load_cert_chain(str(ADMIN.certificate), str(ADMIN.key))
            connection = http.client.HTTPSConnection(self._address, 443, timeout=30, context=context)
            self._local.connection = connection
        return connection


def _error(status: int, content: bytes) -> ApiError:
    try:
        answer = json.loads(content)
        return ApiError(status, str(answer.get("message", "")), str(answer.get("reason", "")))
    except (ValueError, AttributeError):
        return ApiError(status, content.decode(errors="replace"))
