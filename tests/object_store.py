"""A stand-in for an object store that speaks as much of S3's language as runs need."""

import hashlib
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format, *args):
        """Print nothing."""

    def _answer(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def _key(self):
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def objects(self):
        """Key -> content of the whole store."""
        return self.server.objects

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            return self._list(query.get("prefix", [""])[0])
        content = self.objects.get(self._key)
        if content is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        tag, code, headers = _tag(content), 200, {}
        if self.headers.get("If-None-Match") == tag:
            return self._answer(304, ETag=tag)
        span = self.headers.get("Range")
        if span:
            first, last = span.removeprefix("bytes=").split("-")
            end = min(int(last or len(content)), len(content) - 1)
            headers = {"Content_Range": f"bytes {first}-{end}/{len(content)}"}
            content, code = content[int(first) : end + 1], 206
        return self._answer(code, content, ETag=tag, **headers)

    do_HEAD = do_GET

    def do_PUT(self):
        length = int(self.headers["Content-Length"])
        content = self.rfile.read(length)
        if len(content) < length:
            return self._answer(400)  # Who sent it was killed meanwhile.
        old = self.objects.get(self._key)
        wanted, unwanted = (
            self.headers.get("If-Match"),
            self.headers.get("If-None-Match"),
        )
        if (unwanted and old is not None) or (wanted and wanted != _tag(old or b"")):
            return self._answer(412)
        self.server.put(self._key, content)
        return self._answer(200, ETag=_tag(content))

    def do_DELETE(self):
        self.objects.pop(self._key, None)
        return self._answer(204)

    def _list(self, prefix):
        bucket = self._key.rstrip("/")
        names = [key.removeprefix(f"{bucket}/") for key in sorted(self.objects)]
        found = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>1</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in names
            if name.startswith(prefix)
        )
        body = (
            "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>"
            f"<IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        )
        return self._answer(200, body.encode(), Content_Type="application/xml")


class Server(ThreadingHTTPServer):
    """Objects in memory; `delay` seconds pass before one is there."""

    daemon_threads = True
    delay = 0.0

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = {}
        self.num_puts = 0

    def put(self, key, content):
        time.sleep(self.delay)
        self.objects[key] = content
        self.num_puts += 1


def _tag(content):
    return f'"{hashlib.md5(content).hexdigest()}"'


@contextmanager
def serve():
    """An object store on this machine, and the variables that lead to it."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    try:
        yield server, variables
    finally:
        server.shutdown()
        server.server_close()
