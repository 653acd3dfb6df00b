"""Running the command line in this process, and a gateway that only has statistics."""

import http.server
import json
import threading

import pytest

from gateway.cli import main


@pytest.fixture
def upwire(monkeypatch, capsys):
    """Runs ``upwire ARGUMENTS`` and gives exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["upwire", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        seen = capsys.readouterr()
        return ended.value.code, seen.out, seen.err

    return run


@pytest.fixture
def answering():
    """Starts an HTTP server that gives the same answer to every GET; gives its URL and the requests it saw."""
    servers = []

    def start(status, body):
        seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                seen.append((self.path, dict(self.headers)))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}", seen

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()
