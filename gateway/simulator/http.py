"""The HTTP routes of the simulated upstream."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from gateway.simulator.faults import Arrival
from gateway.simulator.http_sinks import EventStream, HttpSink, WholeJson, json_response, refused
from gateway.simulator.journal import Entry
from gateway.simulator.model import Turn
from gateway.simulator.performance import Performance
from gateway.simulator.records import Held, Owner
from gateway.simulator.refusal import Refusal
from gateway.simulator.upstream import Upstream
from gateway.simulator.validation import check, parse

Answer = Callable[[web.Request, Owner, bytes], web.StreamResponse]


class HttpRoutes:
    """Handlers for one upstream. Every request is entered in the journal before it is judged."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._files: dict[str, bytes] = {}

    def add_to(
        self,
        router: web.UrlDispatcher,
        prefix: str,
        upgrade: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> None:
        """Register all routes under ``prefix``; ``upgrade`` serves a GET that asks for a socket."""
        one = prefix + "/responses/{id}"
        router.add_get(prefix + "/responses", upgrade)
        router.add_post(prefix + "/responses", self.create)
        router.add_post(prefix + "/responses/input_tokens", self._plain(self._input_tokens))
        router.add_post(prefix + "/responses/compact", self._plain(self._compact))
        router.add_get(one, self._plain(self._retrieve))
        router.add_delete(one, self._plain(self._delete))
        router.add_get(one + "/input_items", self._plain(self._input_items))
        router.add_post(one + "/cancel", self._plain(self._cancel))
        router.add_get(prefix + "/models", self._plain(self._models))
        router.add_post(prefix + "/files", self._plain(self._upload))
        router.add_get(prefix + "/files/{id}/content", self._plain(self._download))

    async def create(self, request: web.Request) -> web.StreamResponse:
        """``POST /responses``."""
        raw = await request.read()
        entry = self._upstream.record(request, "create", raw)
        try:
            owner = self._upstream.owner(entry.headers)
            entry.body = body = parse(raw)
        except Refusal as refusal:
            return self._refused(entry, refusal)
        if body.get("background") is True:
            return self._background(entry, body)
        arrival = Arrival("http", entry.connection, entry.method, entry.path, entry.headers, body)
        hits = self._upstream.faults.take(
            arrival, "receipt", "events", "deltas", "before_terminal", "after_terminal"
        )
        sink: HttpSink = EventStream(request) if body.get("stream") is True else WholeJson(request)
        model = self._upstream.model

        def admit(draft: dict[str, Any]) -> Turn:
            check(body, self._upstream.options, socket=False)
            return model.admit(
                body, owner, draft, size=len(raw), transport="http", remembered=lambda _name: None
            )

        def commit(turn: Turn, response: dict[str, Any]) -> None:
            model.remember(turn, response)

        draft = model.draft(body)
        await Performance(sink, hits, self._upstream.options, draft, entry).run(admit, commit)
        answer = sink.answer or web.Response(status=500)
        entry.status = entry.status or answer.status
        return answer

    def _plain(self, answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            entry = self._upstream.record(request, "request", raw)
            try:
                response = answer(request, self._upstream.owner(entry.headers), raw)
            except Refusal as refusal:
                return self._refused(entry, refusal)
            entry.outcome, entry.status = "answered", response.status
            return response

        return handle

    def _refused(self, entry: Entry, refusal: Refusal) -> web.Response:
        entry.outcome, entry.status, entry.code = "refused", refusal.status, refusal.code
        return refused(refusal)

    def _background(self, entry: Entry, body: dict[str, Any]) -> web.Response:
        try:
            check(body, self._upstream.options, socket=False)
        except Refusal as refusal:
            return self._refused(entry, refusal)
        queued = {**self._upstream.model.draft(body), "status": "queued"}
        entry.outcome, entry.status, entry.response_id = "answered", 200, queued["id"]
        return json_response(queued)

    def _held(self, request: web.Request, owner: Owner) -> Held:
        name = request.match_info["id"]
        held = self._upstream.records.load(name, owner)
        if held is None:
            raise Refusal(404, f"Response with id '{name}' not found.")
        return held

    def _retrieve(self, request: web.Request, owner: Owner, _raw: bytes) -> web.Response:
        return json_response(self._held(request, owner).response)

    def _delete(self, request: web.Request, owner: Owner, _raw: bytes) -> web.Response:
        held = self._held(request, owner)
        self._upstream.records.forget(held.id)
        return json_response({"id": held.id, "object": "response.deleted", "deleted": True})

    def _input_items(self, request: web.Request, owner: Owner, _raw: bytes) -> web.Response:
        held = self._held(request, owner)
        items = [{"id": f"item_{held.id[5:29]}_{at}", **item} for at, item in enumerate(held.input)]
        if request.query.get("order", "desc") == "desc":
            items.reverse()
        names = [item["id"] for item in items]
        after = request.query.get("after")
        start = names.index(after) + 1 if after in names else 0
        limit = request.query.get("limit", "20")
        if not limit.isdigit() or not 1 <= int(limit) <= 100:
            raise Refusal(400, "Invalid 'limit': expected 1 to 100.", param="limit")
        page = items[start : start + int(limit)]
        return json_response(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": start + len(page) < len(items),
            }
        )

    def _cancel(self, request: web.Request, owner: Owner, _raw: bytes) -> web.Response:
        self._held(request, owner)
        raise Refusal(400, "Cannot cancel a synchronous response.")

    def _input_tokens(self, _request: web.Request, _owner: Owner, raw: bytes) -> web.Response:
        parse(raw)
        return json_response({"object": "response.input_tokens", "input_tokens": len(raw) // 4 + 1})

    def _compact(self, _request: web.Request, _owner: Owner, raw: bytes) -> web.Response:
        parse(raw)
        blob = hashlib.sha256(raw).hexdigest()
        item = {"id": f"cmp_{blob[:32]}", "type": "compaction", "encrypted_content": f"gAAAAA{blob}"}
        return json_response({"id": f"resp_{blob}", "object": "response.compaction", "output": [item]})

    def _models(self, _request: web.Request, _owner: Owner, _raw: bytes) -> web.Response:
        data = [
            {"id": name, "object": "model", "created": 1767225600, "owned_by": "simulator"}
            for name in self._upstream.options.models
        ]
        return json_response({"object": "list", "data": data})

    def _upload(self, _request: web.Request, _owner: Owner, raw: bytes) -> web.Response:
        digest = hashlib.sha256(raw).hexdigest()
        name = f"file-{len(self._files) + 1:04d}{digest[:16]}"
        self._files[name] = raw
        return json_response({"id": name, "object": "file", "bytes": len(raw), "sha256": digest})

    def _download(self, request: web.Request, _owner: Owner, _raw: bytes) -> web.Response:
        raw = self._files.get(request.match_info["id"])
        if raw is None:
            raise Refusal(404, "No such File object.")
        return web.Response(body=raw, content_type="application/octet-stream")
