"""A collector of spans: it takes OTLP over HTTP, as OpenTelemetry's own does, and keeps them."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_S = 30


class Collector:
    def __init__(self) -> None:
        spans: list[Any] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                found = ExportTraceServiceRequest.FromString(body)
                for resource in found.resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.spans = spans
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait_for(self, is_there: Callable[[list[Any]], bool]) -> None:
        until = time.monotonic() + WAIT_S
        while not is_there(self.spans):
            assert time.monotonic() < until, [span.name for span in self.spans]
            time.sleep(0.05)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
