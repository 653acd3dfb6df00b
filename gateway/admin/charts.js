"use strict";

// Building blocks without innerHTML, which the page's policy forbids.
function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const count = (n) => Math.round(n).toLocaleString("en");

function bytes(n) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (Math.abs(n) < 1000 || unit === "GB") return `${unit === "B" ? n : n.toFixed(1)} ${unit}`;
    n /= 1000;
  }
}

function ms(value) {
  if (value === null || value === undefined) return "-";
  if (value < 10) return `${value.toFixed(2)} ms`;
  if (value < 1000) return `${value.toFixed(0)} ms`;
  return value < 60000 ? `${(value / 1000).toFixed(1)} s` : span(value / 1000);
}

function span(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
}

const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "-");
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

// The smallest round number that is not below value, for the top of an axis whose half is written too.
function roundUp(value, whole) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return (whole ? [1, 2, 4, 6, 10] : [1, 2, 2.5, 5, 10]).map((f) => f * power).find((v) => v >= value * 0.999);
}

/* Bars over the last quarter of an hour. Series are {key, label, value(point)}; stacked on each other, or one before the other
   where the first is the larger. The same numbers can be read point by point with the arrow keys, or as a table. */
class BarChart {
  constructor(place, {name, series, format, stacked, whole}) {
    Object.assign(this, {name, series, format, stacked, whole, points: [], cursor: null});
    this.svg = svg("svg", {role: "group", tabindex: 0, "aria-roledescription": "bar chart", "aria-label": name});
    this.output = el("output", {"aria-live": "polite"});
    this.body = el("tbody");
    const heads = ["until", ...series.map((s) => s.label)].map((t, i) => el("th", {scope: "col", class: i ? "n" : null}, t));
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...heads)), this.body);
    this.details = el("details", {}, el("summary", {}, "as a table"), el("div", {tabindex: 0, role: "region", "aria-label": `${name}, as a table`}, table));
    this.details.addEventListener("toggle", () => this.draw());
    place.append(el("ul", {class: "legend"}, ...series.map((s) => el("li", {class: s.key}, s.label))), this.svg, this.output, this.details);
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.move(null));
    this.svg.addEventListener("blur", () => this.move(null));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  update(points) {
    this.points = points;
    this.draw();
  }

  // Neighbouring points are joined where a bar for each would be too thin to see.
  joined() {
    const most = Math.max(12, Math.floor(this.svg.clientWidth / 8)), each = Math.ceil(this.points.length / most);
    const bars = [];
    for (let end = this.points.length; end > 0; end -= each) {
      const part = this.points.slice(Math.max(0, end - each), end);
      bars.unshift({until: part.at(-1).until, values: this.series.map((s) => part.reduce((sum, p) => sum + s.value(p), 0))});
    }
    return bars;
  }

  draw() {
    const width = this.svg.clientWidth, height = 190, left = 52, bottom = 20, top = 8;
    if (!width || !this.points.length) return;
    const bars = (this.bars = this.joined());
    const tall = (bar) => (this.stacked ? bar.values.reduce((a, b) => a + b, 0) : Math.max(...bar.values));
    const highest = roundUp(Math.max(this.whole ? 4 : 1000, ...bars.map(tall)), this.whole);
    const room = height - bottom - top, step = (width - left) / bars.length, y = (v) => top + room - (v / highest) * room;
    const parts = [0, 0.5, 1].flatMap((f) => [
      svg("line", {class: "grid", x1: left, x2: width, y1: y(f * highest), y2: y(f * highest)}),
      svg("text", {x: left - 8, y: y(f * highest) + 4, "text-anchor": "end"}, this.format(f * highest)),
    ]);
    bars.forEach((bar, i) => {
      let base = 0;
      bar.values.forEach((value, s) => {
        if (value > 0) {
          const h = Math.max(1, (value / highest) * room), inset = this.stacked || s === 0 ? 0 : step * 0.2;
          const x = left + i * step + 0.5 + inset, w = Math.max(1, step - 1.5 - 2 * inset);
          parts.push(svg("rect", {class: this.series[s].key, x, y: y(base + value), width: w, height: h}));
        }
        if (this.stacked) base += value;
      });
    });
    const minutes = Math.round((this.points.length * (this.points[1].until - this.points[0].until)) / 60);
    for (const [f, text, anchor] of [[0, `${minutes} min ago`, "start"], [1 / 3, `${Math.round((minutes * 2) / 3)}`, "middle"], [2 / 3, `${Math.round(minutes / 3)}`, "middle"], [1, "now", "end"]]) {
      parts.push(svg("text", {x: left + f * (width - left), y: height - 4, "text-anchor": anchor}, text));
    }
    this.mark = svg("rect", {class: "cursor", y: top, height: room, width: step, visibility: "hidden"});
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts, this.mark);
    this.place = (i) => left + i * step;
    this.find = (x) => Math.min(bars.length - 1, Math.max(0, Math.floor((x - left) / step)));
    const all = this.series.map((s) => `${s.label} ${this.format(this.points.reduce((sum, p) => sum + s.value(p), 0))}`);
    this.svg.setAttribute("aria-label", `${this.name}, last ${minutes} minutes: ${all.join(", ")}. Arrow keys read single bars.`);
    this.move(this.cursor, false);
    if (this.details.open) this.fill(bars);
  }

  fill(bars) {
    const rows = bars.filter((bar) => bar.values.some((v) => v)).reverse();
    this.body.replaceChildren(...rows.map((bar) => el("tr", {}, el("td", {}, clock(bar.until)), ...bar.values.map((v) => el("td", {class: "n"}, this.format(v))))));
  }

  key(event) {
    const last = (this.bars ?? []).length - 1, now = this.cursor ?? last + 1;
    const to = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, Escape: null}[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.move(to === null ? null : Math.min(last, Math.max(0, to)));
  }

  point(event) {
    if (this.find) this.move(this.find(event.clientX - this.svg.getBoundingClientRect().left));
  }

  move(to, tell = true) {
    this.cursor = to;
    if (!this.mark) return;
    this.mark.setAttribute("visibility", to === null ? "hidden" : "visible");
    const bar = to === null ? null : this.bars[to];
    if (bar) this.mark.setAttribute("x", this.place(to));
    if (tell || to !== null) {
      this.output.textContent = bar ? `until ${clock(bar.until)}: ${this.series.map((s, i) => `${s.label} ${this.format(bar.values[i])}`).join(", ")}` : "";
    }
  }
}
