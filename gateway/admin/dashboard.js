const TEXTS = "/* texts */";
const MODES = ["delta", "full", "http"];
const SHOWN_TURNS = 100;
const POINTS = 90;
const $ = (id) => document.getElementById(id);

const now = {stats: null, turns: [], rebuild: false, history: new Map(), step: 10};
let token = "";

const turnChart = new BarChart($("turns"), {
  name: "Turns by mode", stacked: true, whole: true, format: count,
  series: MODES.map((mode) => ({key: mode, label: mode, value: (p) => p[mode]})),
});
const byteChart = new BarChart($("bytes"), {
  name: "Bytes sent, against plain HTTP", stacked: false, whole: false, format: bytes,
  series: [
    {key: "plainly", label: "plain HTTP would have sent", value: (p) => p.client_in},
    {key: "sent", label: "sent", value: (p) => p.upstream_out},
  ],
});

// What comes in.

const take = {
  recent(value) {
    now.turns = value.turns.slice().reverse();
    now.rebuild = true;
    now.step = value.step_seconds;
    now.history = new Map(value.history.map((point) => [point.at, point]));
  },
  turn(value) {
    now.turns.unshift(value);
    now.turns.length = Math.min(now.turns.length, SHOWN_TURNS);
    const at = Math.floor(value.at / now.step) * now.step;
    if (!now.history.has(at)) now.history.set(at, {at, delta: 0, full: 0, http: 0, client_in: 0, upstream_out: 0});
    const point = now.history.get(at);
    point[value.mode] += 1;
    point.client_in += value.bytes_in;
    point.upstream_out += value.bytes_sent;
  },
  stats(value) {
    now.stats = value;
  },
};

async function follow() {
  for (let wait = 1; ; wait = Math.min(wait * 2, 10)) {
    try {
      const answer = await fetch("/events", {headers: token ? {"x-upwire-token": token} : {}, cache: "no-store"});
      if (answer.status === 401) return ask();
      if (!answer.ok) throw new Error(answer.status);
      $("door").hidden = true;
      wait = 1;
      await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch {
      // Told below; the next try follows.
    }
    tell("gone", "gone, waiting for it");
    await new Promise((done) => setTimeout(done, wait * 1000));
  }
}

async function read(reader) {
  for (let text = ""; ; ) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const [kind, data] = text.slice(0, end).split("\n", 2);
      take[kind.slice(7)]?.(JSON.parse(data.slice(6)));
    }
    show();
  }
}

function ask() {
  tell("gone", "needs the token");
  $("door").hidden = false;
  $("token").focus();
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  follow();
});

function tell(state, text) {
  // Said by screen readers, so only when it changes.
  if ($("state").textContent === text) return;
  $("state").dataset.state = state;
  $("state").textContent = text;
}

// What is shown.

function show() {
  if (!now.stats || document.hidden) return;
  const s = now.stats;
  tell(s.phase === "ready" ? "live" : "waiting", s.phase === "ready" ? "live" : s.phase);
  $("about").textContent = `${s.version}, up ${span(s.uptime_seconds)}, upstream ${s.upstream.url ?? "?"}`;
  document.title = `upwire: ${percent(s.turns.delta, s.turns.total)} delta`;
  sum(s);
  charts(s);
  reasons(s);
  latency(s);
  upstream(s);
  several(s);
  repairs(s);
  sockets(s);
  recent();
}

function sum(s) {
  const t = s.turns, b = s.bytes, added = s.latency_ms.added;
  const nothing = b.saved <= 0 && !t.delta;
  const tiles = [
    nothing ? ["saved", "-", "begins with a conversation's second turn"] : ["saved", percent(b.saved, b.client_in), `${bytes(b.saved)} of ${bytes(b.client_in)}`],
    ["sent as deltas", percent(t.delta, t.total), `${count(t.delta)} of ${count(t.total)} turns`],
    ["running now", count(t.in_flight), `${count(s.connections.busy)} of ${count(s.connections.open)} sockets busy`],
    ["failed", count(t.failed), `${count(t.cancelled)} cancelled by clients`],
    ["added by the gateway", ms(added.p50), `p95 ${ms(added.p95)}`],
    ["conversations", count(s.conversations.known), `${bytes(s.conversations.bytes ?? 0)} of memory`],
  ];
  $("sum").replaceChildren(...tiles.map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, more)))));
}

function charts(s) {
  const last = Math.floor(s.at / now.step) * now.step, points = [];
  for (let at = last - (POINTS - 1) * now.step; at <= last; at += now.step) {
    const empty = {delta: 0, full: 0, http: 0, client_in: 0, upstream_out: 0};
    points.push({...empty, ...now.history.get(at), until: at + now.step});
  }
  for (const at of now.history.keys()) if (at < points[0].until - now.step) now.history.delete(at);
  turnChart.update(points);
  byteChart.update(points);
}

// Lists are only rebuilt when they change: a screen reader may be reading them.
function replace(node, key, children) {
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(...children());
}

function ranked(counts) {
  return Object.entries(counts ?? {}).filter(([, n]) => n).sort((a, b) => b[1] - a[1]);
}

function reasons(s) {
  const found = ranked(s.reasons), all = found.reduce((total, [, n]) => total + n, 0);
  replace($("reasons"), JSON.stringify(found), () => found.length ? found.map(([name, n]) => {
    const [meaning, remedy] = TEXTS.reasons[name] ?? ["", ""], fill = el("i");
    fill.style.width = `${(100 * n) / all}%`;
    const head = el("div", {class: "head"}, el("b", {}, name), el("span", {}, `${count(n)}, ${percent(n, all)}`));
    return el("li", {}, head, el("div", {class: "bar", "aria-hidden": "true"}, fill), el("p", {}, meaning), el("p", {}, remedy));
  }) : [el("li", {}, "Every turn so far was a delta, or none has ended.")]);
}

function latency(s) {
  const names = {first_event: "first event of the upstream", added: "added by the gateway", duration: "whole turn"};
  const rows = Object.entries(names).map(([key, name]) => {
    const p = s.latency_ms[key] ?? {};
    return el("tr", {}, el("th", {scope: "row"}, name), ...["p50", "p95", "p99"].map((q) => el("td", {class: "n"}, ms(p[q]))));
  });
  document.querySelector("#latency tbody").replaceChildren(...rows);
}

function upstream(s) {
  const u = s.upstream, refused = u.refusal ? `${u.refusal.reason}${u.refusal.status ? ` ${u.refusal.status}` : ""}` : "";
  const socket = {works: "works", untried: "not tried yet"}[u.websocket] ?? `refused (${refused}); tried again in ${span(u.retry_in_seconds ?? 0)}`;
  const rows = [
    ["address", u.url ?? "?"],
    ["mode, match", u.mode === "http" ? "http: nothing is upgraded" : `${u.mode}, ${u.match}`],
    ["WebSocket", el("span", {class: u.websocket === "works" ? "good" : u.websocket === "refused" ? "bad" : null}, socket)],
    ["dials refused", ranked(s.connections.refused).map(([name, n]) => `${name} ${count(n)}`).join(", ") || "none"],
    ["socket age limit", `${span(u.socket_age_seconds ?? 0)}${u.socket_age_learned ? ", learned" : ""}`],
    ["frame limit", `${bytes(u.frame_limit_bytes ?? 0)}${u.frame_limit_learned ? ", learned" : ""}`],
  ];
  if (u.streams_over_http_seconds) rows.push(["streams", `over plain HTTP for ${span(u.streams_over_http_seconds)} more: its events on sockets were incomplete`]);
  if (u.nothing_chained_seconds) rows.push(["deltas", `none for ${span(u.nothing_chained_seconds)} more: it ignored a parent`]);
  if (u.fields_over_http?.length) rows.push(["only over HTTP", u.fields_over_http.join(", ")]);
  $("upstream").replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function several(s) {
  const all = Object.entries(s.upstreams ?? {});
  $("several").hidden = all.length < 2;
  document.querySelector("#upstreams tbody").replaceChildren(...all.map(([name, u]) => el("tr", {},
    el("th", {scope: "row"}, name), ...[u.path, u.url, u.profile].map((text) => el("td", {}, text)),
    el("td", {class: u.websocket === "works" ? "good" : u.websocket === "refused" ? "bad" : null}, u.websocket),
    ...[count(u.turns.total), percent(u.turns.delta, u.turns.total), count(u.turns.failed), count(u.connections.open)].map((text) => el("td", {class: "n"}, text)))));
}

function repairs(s) {
  const lists = [["recoveries", s.recoveries], ["closed", s.connections.closed]];
  const found = lists.flatMap(([kind, counts]) => ranked(counts).map(([name, n]) => [kind, name, n]));
  replace($("repairs"), JSON.stringify(found), () => found.length ? found.map(([kind, name, n]) => {
    const [meaning] = TEXTS[kind][name] ?? [""];
    return el("li", {}, `${kind === "closed" ? "closed: " : ""}${name} ${count(n)} `, el("small", {}, meaning));
  }) : [el("li", {}, "None.")]);
}

function sockets(s) {
  const c = s.connections;
  $("socket-sum").textContent = `${count(c.open)} open: ${count(c.busy)} busy, ${count(c.idle)} idle. ${count(c.opened)} opened, ${count(c.reused)} turns on an open one.`;
  const holds = {nothing: "holds nothing", alone: "holds a conversation", stored: "holds a stored one"};
  // By number, so that none jumps about.
  const listed = s.sockets.toSorted((a, b) => a.socket - b.socket);
  $("sockets").replaceChildren(...listed.map((each) => el("li", {"data-state": each.state},
    el("b", {}, `${each.socket} ${each.state}`), ` for ${span(each.state_seconds)}`,
    el("small", {}, `${count(each.turns)} ${each.turns === 1 ? "turn" : "turns"}, ${span(each.age_seconds)} old`), el("small", {}, holds[each.holds] ?? ""))));
}

function recent() {
  const body = document.querySelector("#recent tbody");
  $("no-turns").hidden = now.turns.length > 0;
  $("base").textContent = `${location.origin}/v1`;
  // Rows are kept, so that neither a selection nor a reader's place is lost.
  if (now.rebuild) body.replaceChildren();
  now.rebuild = false;
  const newest = body.rows.length ? Number(body.rows[0].dataset.n) : 0;
  body.prepend(...now.turns.filter((t) => t.n > newest).map(row));
  while (body.rows.length > SHOWN_TURNS) body.rows[SHOWN_TURNS].remove();
}

function row(t) {
  const cell = (text, kind, label) => el("td", {role: "cell", class: kind, "data-label": label}, text);
  const failed = t.outcome === "failed" ? "bad" : null;
  const again = t.recoveries.length ? ` (${t.recoveries.join(", ")})` : "";
  return el("tr", {role: "row", "data-n": t.n},
    cell(clock(t.at)), cell(t.model), cell(t.mode, `mode ${t.mode}`), cell((t.reason ?? "-") + again, t.reason || again ? "reason" : "reason none"),
    cell(`${t.outcome} ${t.status}`, failed), cell(bytes(t.bytes_in), "n", "in"), cell(bytes(t.bytes_sent), "n", "sent"),
    cell(ms(t.first_event_ms), "n", "first"), cell(ms(t.duration_ms), "n", "took"));
}

document.addEventListener("visibilitychange", show);
follow();
