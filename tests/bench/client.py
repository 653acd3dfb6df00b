"""The client of all measurements: blocking sockets kept alive, an agent's growing history, times of arrival."""

from __future__ import annotations

import re
import socket
import threading
import time
from dataclasses import dataclass, field

from tests.bench.upstream import ITEM, dump

_STAMP = re.compile(rb'"delta":"(\d{20}) ')
_END = b"0\r\n\r\n"


class Client:
    """One connection to ``port``."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), 60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = port

    def close(self):
        self.sock.close()

    def turn(self, body, *, delays=None):
        """POST ``body`` and read the answer; seconds from the last byte written to the first event's arrival.

        The delays in ns from an event's writing to its arrival are added to ``delays``.
        """
        head = (
            f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\nauthorization: Bearer bench\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        self.sock.sendall(head + body if len(body) < 100_000 else head)
        if len(body) >= 100_000:
            self.sock.sendall(body)
        sent = time.perf_counter()
        first = None
        tail = seen = b""
        while not tail.endswith(_END):
            data = self.sock.recv(262_144)
            if not data:
                raise ConnectionResetError
            if first is None:
                seen += data
                if b"response.created" in seen:
                    first = time.perf_counter() - sent
                    if not seen.startswith(b"HTTP/1.1 200"):
                        raise RuntimeError(seen[:300])
            if delays is not None:
                now = time.monotonic_ns()
                delays.extend(now - int(stamp) for stamp in _STAMP.findall(data))
            tail = (tail + data)[-5:]
        return first


@dataclass
class Talk:
    """An agent's conversation: each body is the one before, the answer, and a new item."""

    events: int = 1
    rate: int = 0
    items: list = field(default_factory=list)
    store: bool = False

    def body(self):
        head = {"model": f"bench {self.events} {self.rate}", "stream": True, "store": self.store}
        return dump(head)[:-1] + b',"input":[' + b",".join(self.items) + b"]}"

    def say(self, text):
        self.items.append(dump({"type": "message", "role": "user", "content": text}))

    def turn(self, client, **options):
        """One turn, and what an agent does with its answer."""
        self.say("go on")
        first = client.turn(self.body(), **options)
        self.items.append(dump(ITEM))
        return first


def talk(size, *, events=1, rate=0, label="", piece=2400):
    """A conversation whose history has about ``size`` bytes, of items of about ``piece`` bytes; ``label`` makes it its own."""
    made = Talk(events, rate)
    count = max(1, size // (piece + 70))
    for number in range(count):
        made.say(f"{label} {number} " + "The quick brown fox jumps over the lazy dog. é\n" * (piece // 48))
    return made


def together(port, talks, **options):
    """One turn of each conversation at once, each on its own connection; the delays of all events in ns."""
    clients = [Client(port) for _ in talks]
    delays = [[] for _ in talks]

    def run(at):
        talks[at].turn(clients[at], delays=delays[at], **options)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(talks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    return [delay for each in delays for delay in each]


__all__ = ["Client", "Talk", "talk", "together"]
