"""What is measured, each as a process of its own with one port: nginx, a plain aiohttp pass-through, the gateway."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.ports import free_port

_NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 0; client_body_buffer_size 128k; client_body_temp_path {folder}/body;
  keepalive_requests 1000000;
  proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream bench {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://bench; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
"""


class Pins:
    """The measured process alone on the last processor, all others on the rest, where there is more than one."""

    def __init__(self):
        processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
        self.possible = len(processors) > 1
        self.subject = set(processors[-1:])
        self.others = set(processors[:-1]) or self.subject

    def apply(self):
        """Pin this process, and with it the upstream and all that it starts."""
        if self.possible:
            os.sched_setaffinity(0, self.others)


class Subject:
    """A running process that answers at ``port``."""

    def __init__(self, name, child, port):
        self.name = name
        self.child = child
        self.port = port

    @property
    def cpu(self):
        """Seconds of processor time taken so far, all threads together."""
        folder = Path(f"/proc/{self.child.pid}")
        try:
            return (
                sum(int(task.read_text().split()[0]) for task in folder.glob("task/*/schedstat"))
                / 1_000_000_000
            )
        except (OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self):
        """Bytes of resident memory."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@contextlib.contextmanager
def running(name, command, pins, *, port=None, **options):
    """Start a process, pinned as the subject; ``port`` None: it prints its port as the last number of a line."""
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE if port is None else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )
    _pin(child, pins)
    try:
        if port is None:
            port = _told(child)
        _until_open(child, port)
        yield Subject(name, child, port)
    finally:
        child.terminate()
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _pin(child, pins):
    if pins:
        os.sched_setaffinity(child.pid, pins)


def _told(child):
    for line in child.stdout:
        text = line.decode().strip()
        if text.isdigit():
            return int(text)
        if text.startswith("listening on http"):
            return int(text.rpartition(":")[2])
    raise RuntimeError("the process ended before it said where it listens")


def _until_open(child, port):
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if child.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return


def upstream(pins):
    """The upstream, beside everything that is not measured."""
    command = [sys.executable, "-m", "tests.bench.upstream"]
    return running("upstream", command, pins.others if pins.possible else None)


def find_nginx(*, install):
    """The path of nginx, None if it is not here and cannot be installed; ``install`` allows to try."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None and install and shutil.which("apt-get") and os.geteuid() == 0:
        for arguments in (
            ["update", "-qq"],
            ["install", "-y", "-qq", "--no-install-recommends", "nginx-light"],
        ):
            subprocess.run(
                ["apt-get", *arguments],
                check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300,
                # The package would start a server of its own.
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"},
            )  # fmt: skip
        found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    return found


def nginx(path, to, folder, pins):
    """The floor: nothing but forwarding, unbuffered both ways."""
    port = free_port()
    folder = Path(folder)
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, upstream=to))
    command = [path, "-p", str(folder), "-c", str(config)]
    return running("nginx", command, pins.subject if pins.possible else None, port=port)


def passthrough(to, pins):
    """What a pass-through of the same libraries costs."""
    command = [sys.executable, "-m", "tests.bench.passthrough", str(to)]
    return running("aiohttp pass-through", command, pins.subject if pins.possible else None)


def gateway(to, folder, pins, *options, name="gateway", loop="asyncio"):
    """The gateway with all checks, metrics and logs on; its log goes to a file."""
    command = [
        sys.executable, "-m", "gateway", "serve", "--profile", "openai", "--port", "0", "--upstream", f"http://127.0.0.1:{to}/v1",
        "--loop", loop, *options,
    ]  # fmt: skip
    log = (Path(folder) / "gateway.log").open("ab")
    return _logged(name, command, pins.subject if pins.possible else None, log)


@contextlib.contextmanager
def _logged(name, command, pins, log):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("UPWIRE_")}
    with log:
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**clean, "XDG_CONFIG_HOME": str(Path(log.name).parent)},
        )
        _pin(child, pins)
        try:
            yield Subject(name, child, _told(child))
        finally:
            child.terminate()
            child.wait(15)
            child.stdout.close()


def stats(subject):
    """What the gateway counts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{subject.port}/stats", timeout=10) as answer:
        return json.load(answer)
