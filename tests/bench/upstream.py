"""An upstream so cheap that it is not what is measured: blocking sockets, one thread each, answers made of prepared bytes.

It speaks HTTP and WebSocket on one port and holds no conversations. The model of a request says what to answer:
``"model":"bench EVENTS RATE"``, with RATE in events a second, 0 for all at once. Each paced event holds the time of its writing.
Run as ``python -m tests.bench.upstream``; prints its port.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import socket
import sys
import threading
import time

ITEM = {
    "id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
    "content": [{"type": "output_text", "text": "bench", "annotations": []}],
}  # fmt: skip
_DELTA = (
    '{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,'
    '"sequence_number":1,"delta":"%s %s","logprobs":[]}'
)
_EVENT_SIZE = 300
_CONTROL = re.compile(rb'"model":"bench (\d+) (\d+)"')
_KEY = re.compile(rb"(?i)sec-websocket-key:([^\r]+)")
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
_HEAD = 65_536
_NAMES = itertools.count(1)
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def dump(value):
    return json.dumps(value, separators=(",", ":")).encode()


def before(name):
    started = {"id": name, "object": "response", "status": "in_progress", "output": [], "model": "bench"}
    empty = {**ITEM, "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return [
        dump({"type": "response.created", "sequence_number": 0, "response": started}),
        dump({"type": "response.output_item.added", "output_index": 0, "item": empty}),
        dump({"type": "response.content_part.added", **where, "part": part}),
    ]


def after(name):
    ended = {"id": name, "object": "response", "status": "completed", "output": [ITEM], "model": "bench"}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return [
        dump({"type": "response.output_text.done", **where, "text": "bench"}),
        dump({"type": "response.content_part.done", **where, "part": ITEM["content"][0]}),
        dump({"type": "response.output_item.done", "output_index": 0, "item": ITEM}),
        dump({"type": "response.completed", "response": ended}),
    ]


def delta():
    stamp = f"{time.monotonic_ns():020}"
    bare = len(_DELTA) - 4 + len(stamp) + 1
    return (_DELTA % (stamp, "x" * (_EVENT_SIZE - bare))).encode()


def as_frame(event):
    size = len(event)
    if size < 126:
        return bytes((0x81, size)) + event
    if size < 65_536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + event
    return b"\x81\x7f" + size.to_bytes(8, "big") + event


def as_chunk(event):
    kind = event[9 : event.index(b'"', 9)]
    text = b"event: " + kind + b"\ndata: " + event + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(text), text)


class Connection:
    """One accepted connection, served until it ends."""

    def __init__(self, sock):
        self.sock = sock
        self.held = bytearray()
        self.scratch = bytearray(1 << 20)

    def serve(self):
        try:
            while self.request():
                pass
        except OSError:
            pass
        finally:
            self.sock.close()

    def fill(self, size):
        while len(self.held) < size:
            data = self.sock.recv(_HEAD)
            if not data:
                raise ConnectionResetError
            self.held += data

    def take(self, size):
        self.fill(size)
        taken = bytes(self.held[:size])
        del self.held[:size]
        return taken

    def payload(self, size, most=4096):
        """Read ``size`` bytes, of which the first ones are given back."""
        first = self.take(min(size, max(most, len(self.held))))
        left = size - len(first)
        while left:
            came = self.sock.recv_into(self.scratch, min(left, len(self.scratch)))
            if not came:
                raise ConnectionResetError
            left -= came
        return first[:most]

    def request(self):
        while (end := self.held.find(b"\r\n\r\n")) < 0:
            data = self.sock.recv(_HEAD)
            if not data:
                return False
            self.held += data
        head = self.take(end + 4)
        key = _KEY.search(head)
        if key is not None:
            self.socket(key.group(1).strip())
            return False
        length = _LENGTH.search(head)
        first = self.payload(int(length.group(1))) if length else self.chunks()
        self.sock.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self.answer(first, as_chunk)
        self.sock.sendall(b"0\r\n\r\n")
        return True

    def chunks(self):
        first = b""
        while True:
            while (end := self.held.find(b"\r\n")) < 0:
                self.fill(len(self.held) + 1)
            size = int(self.take(end + 2), 16)
            piece = self.payload(size)
            self.take(2)
            if not size:
                return first
            first = first or piece

    def answer(self, first, framed):
        found = _CONTROL.search(first)
        events, rate = (int(found.group(1)), int(found.group(2))) if found else (1, 0)
        name = f"resp_{next(_NAMES):012}"
        if not rate:
            one = framed(delta())
            self.sock.sendall(b"".join([*map(framed, before(name)), one * events, *map(framed, after(name))]))
            return
        self.sock.sendall(b"".join(map(framed, before(name))))
        due = time.monotonic()
        for _ in range(events):
            due += 1 / rate
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            self.sock.sendall(framed(delta()))
        self.sock.sendall(b"".join(map(framed, after(name))))

    def frame(self):
        first, second = self.take(2)
        size = second & 127
        if size > 125:
            size = int.from_bytes(self.take(2 if size == 126 else 8), "big")
        mask = self.take(4)
        data = self.payload(size)
        spread = (mask * (len(data) // 4 + 1))[: len(data)]
        plain = (int.from_bytes(data, "big") ^ int.from_bytes(spread, "big")).to_bytes(len(data), "big")
        return first & 15, plain

    def socket(self, key):
        """Upgrade and serve frames until the close frame."""
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        self.sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: " + accept + b"\r\n\r\n"
        )
        while True:
            code, data = self.frame()
            if code == 8:
                return
            if code == 9:
                self.sock.sendall(bytes((0x8A, len(data))) + data)
            elif code == 1:
                self.answer(data, as_frame)


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=Connection(sock).serve, daemon=True).start()


if __name__ == "__main__":
    main()
