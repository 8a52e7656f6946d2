// The graph itself, drawn by Bokeh: ops in layers with what is between them, of which only what is in view is drawn.

const NODE = { across: 176, down: 66, width: 160, height: 42 };
const MOST_DRAWN = 1200;
const LEGIBLE = 0.45;
const CELL = 4;

/** The middle of what is shown, moved so that nothing beside the whole is shown as long as it is larger. */
function inside(middle, half, low, high) {
  return 2 * half >= high - low ? (low + high) / 2 : Math.max(low + half, Math.min(high - half, middle));
}

/** Group places by a small number each of them has; the function made gives those of a range of these numbers. */
function sorted(keys, count) {
  const starts = new Int32Array(count + 1);
  for (const key of keys) starts[key + 1] += 1;
  for (let key = 0; key < count; key++) starts[key + 1] += starts[key];
  const next = starts.slice();
  const order = new Int32Array(keys.length);
  keys.forEach((key, place) => (order[next[key]++] = place));
  return (from, to) => order.subarray(starts[Math.min(count, Math.max(0, from))], starts[Math.min(count, Math.max(0, to + 1))]);
}

class GraphView {
  constructor(model, plots, onTap) {
    this.model = model;
    this.plots = plots;
    this.status = document.getElementById("graph-view");
    this.marks = { chosen: [], source: [], sink: [] };
    this.readGraph(model.graph);
    this.zoom = 1;
    this.x = new Bokeh.Range1d({ start: 0, end: 1 });
    this.y = new Bokeh.Range1d({ start: 0, end: 1 });
    this.figure = this.makeFigure();
    this.figure.on_event("tap", (event) => {
      const op = this.at(event.x, event.y);
      onTap(op < 0 ? { buffer: -1 } : { step: this.first + op });
    });
    this.figure.on_event("pinch", (event) => this.zoomBy(event.scale > 1 ? 1.04 : 1 / 1.04));
    for (const range of [this.x, this.y]) for (const name of ["start", "end"]) range.properties[name].change.connect(() => this.later());
  }

  /** Columns of ops; hops, the lines from one layer to the next, by layer; and what each op reads and is read by. */
  readGraph({ first, unit, layer, across, count, reads, bends, types, type, shade }) {
    const ops = layer.length;
    let depth = 0;
    this.layer = Int32Array.from(layer, (more) => (depth += more));
    this.deepest = this.layer.reduce((most, each) => Math.max(most, each), 0);
    this.across = Float32Array.from(across, (place) => (place / unit) * NODE.across);
    this.bends = new Map(bends.map(([op, ...places]) => [op, places.map((place) => (place / unit) * NODE.across)]));
    this.width = [this.across, ...this.bends.values()].reduce((most, places) => places.reduce((one, each) => Math.max(one, each), most), 0);
    const readers = new Int32Array(reads.length);
    count.reduce((start, many, op) => readers.fill(op, start, start + many) && start + many, 0);
    const made = Int32Array.from(reads, (back, place) => readers[place] - back);
    Object.assign(this, { first, ops, types, type, shade, readers, made, before: sorted(readers, ops), after: sorted(made, ops) });
    this.readHops();
  }

  readHops() {
    const bent = [...this.bends.values()].reduce((sum, places) => sum + places.length, 0);
    const most = this.made.length + bent;
    const hop = { layer: new Int32Array(most), from: new Float32Array(most), to: new Float32Array(most), leaves: new Uint8Array(most), arrives: new Uint8Array(most) };
    let size = 0;
    const add = (layer, from, to, leaves, arrives) => {
      [hop.layer[size], hop.from[size], hop.to[size], hop.leaves[size], hop.arrives[size]] = [layer, from, to, leaves, arrives];
      size += 1;
    };
    for (const [op, places] of this.bends) {
      places.forEach((place, index) => add(this.layer[op] + index, index ? places[index - 1] : this.across[op], place, index ? 0 : 1, 0));
    }
    this.far = [];
    for (let edge = 0; edge < this.made.length; edge++) {
      const [op, reader] = [this.made[edge], this.readers[edge]];
      const passed = this.layer[reader] - this.layer[op] - 1;
      const places = passed ? this.bends.get(op) ?? [] : [];
      if (passed > places.length) this.far.push([op, reader]);
      else add(this.layer[reader] - 1, passed ? places[passed - 1] : this.across[op], this.across[reader], passed ? 0 : 1, 1);
    }
    this.hop = hop;
    this.hops = sorted(hop.layer.subarray(0, size), this.deepest + 1);
    this.rows = sorted(this.layer, this.deepest + 1);
  }

  reads(op) {
    return Array.from(this.before(op, op), (edge) => this.made[edge]);
  }

  readBy(op) {
    return Array.from(this.after(op, op), (edge) => this.readers[edge]);
  }

  makeFigure() {
    const { plots } = this;
    const figure = Bokeh.Plotting.figure({
      sizing_mode: "stretch_both", x_range: this.x, y_range: this.y, x_axis_type: null, y_axis_type: null, toolbar_location: null, tools: [], min_border: 0,
    });
    for (const each of figure.center) each.visible = false;
    const pan = new Bokeh.PanTool();
    figure.add_tools(pan);
    figure.toolbar.active_drag = pan;
    const lines = (paint, options) => plots.paint(figure.bezier({
      x0: { field: "x0" }, y0: { field: "y0" }, x1: { field: "x1" }, y1: { field: "y1" }, cx0: { field: "x0" }, cy0: { field: "middle" }, cx1: { field: "x1" }, cy1: { field: "middle" },
      source: source(this.lines([])), ...options,
    }), paint);
    this.edges = lines({ line_color: "soft" }, { line_width: 1, line_alpha: 0.7 });
    this.marked = { source: lines({ line_color: "source" }, { line_width: 2.6 }), sink: lines({ line_color: "sink" }, { line_width: 2.6 }) };
    this.cells = plots.quads(figure, {}, { fill_color: "merged" }, { line_alpha: 0 });
    this.paper = plots.quads(figure, {}, { fill_color: "panel", line_color: "soft" }, { line_width: 1 });
    this.nodes = plots.quads(figure, { shade: [] }, { fill_color: "atpeak" }, { fill_alpha: { field: "shade" }, line_alpha: 0 });
    this.outlines = Object.fromEntries(["source", "sink", "chosen"].map((name) => [name, plots.quads(figure, {}, { line_color: name, fill_color: name }, { fill_alpha: 0.3, line_width: 2.6 })]));
    this.labels = plots.paint(figure.text({ x: { field: "x" }, y: { field: "y" }, text: { field: "text" }, source: source({ x: [], y: [], text: [] }), text_align: "center", text_baseline: "middle" }), { text_color: "ink" });
    plots.hover(figure, [this.nodes], [["", "@name"], ["makes", "@form"], ["needs", "@needs"]]);
    for (const name of ["inner_width", "inner_height"]) figure.properties[name].change.connect(() => this.resized());
    plots.others.push(figure);
    return figure;
  }

  get size() {
    return [this.figure.inner_width || 400, this.figure.inner_height || 400];
  }

  /** How many pixels across there are to one: never fewer than show the graph half as wide as the picture. */
  flat(zoom) {
    return Math.max(zoom, Math.min(0.3, this.size[0] / 2 / (this.width + NODE.across)));
  }

  get fitting() {
    const [width, height] = this.size;
    const [across, down] = [this.width + NODE.across, (this.deepest + 1) * NODE.down];
    return Math.min(1, height / down, Math.max(width / across, 0.02));
  }

  get centre() {
    return [(this.x.start + this.x.end) / 2, (this.y.start + this.y.end) / 2];
  }

  show([x, y], zoom = this.zoom) {
    this.zoom = Math.min(2.5, Math.max(this.fitting / 1.2, zoom));
    const [across, down] = this.size;
    const [half, tall] = [across / 2 / this.flat(this.zoom), down / 2 / this.zoom];
    [x, y] = [inside(x, half, -NODE.across / 2, this.width + NODE.across / 2), inside(y, tall, -(this.deepest + 0.5) * NODE.down, NODE.down / 2)];
    this.x.setv({ start: x - half, end: x + half });
    this.y.setv({ start: y - tall, end: y + tall });
    this.later();
  }

  zoomBy(factor, [x, y] = this.centre) {
    const [wasFlat, was, [middle, level]] = [this.flat(this.zoom), this.zoom, this.centre];
    const zoom = Math.min(2.5, Math.max(this.fitting / 1.2, was * factor));
    this.show([x + ((middle - x) * wasFlat) / this.flat(zoom), y + ((level - y) * was) / zoom], zoom);
  }

  move(right, up) {
    const [x, y] = this.centre;
    this.show([x + (right * this.size[0]) / this.flat(this.zoom), y + (up * this.size[1]) / this.zoom]);
  }

  whole() {
    this.show([this.width / 2, (-this.deepest * NODE.down) / 2], this.fitting);
  }

  /** Show an op, as large as it is now, or so that it can be read. */
  reveal(step, zoom = Math.max(this.zoom, Math.min(0.8, Math.max(this.fitting, 0.62)))) {
    const op = step - this.first;
    if (op < 0 || op >= this.ops) return;
    this.show([this.across[op], -this.layer[op] * NODE.down], zoom);
  }

  open() {
    if (this.fitting >= 0.6) this.whole();
    else this.reveal(Math.max(0, this.model.figures.peakStep), 0.8);
    this.opened = true;
  }

  resized() {
    if (this.opened) this.show(this.centre);
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  /** The ops in view, and the layers. */
  inView() {
    const [from, to] = [Math.floor(-this.y.end / NODE.down), Math.ceil(-this.y.start / NODE.down)];
    const [left, right] = [this.x.start - NODE.width / 2, this.x.end + NODE.width / 2];
    return { from, to, left, right, ops: Array.from(this.rows(from, to).filter((op) => this.across[op] >= left && this.across[op] <= right)) };
  }

  draw() {
    const view = this.inView();
    const whole = view.ops.length <= MOST_DRAWN;
    const boxes = whole ? this.boxes(view.ops) : this.boxes([]);
    this.paper.data_source.data = boxes;
    this.nodes.data_source.data = { ...boxes, ...this.words(whole ? view.ops : []) };
    this.edges.data_source.data = this.lines(whole ? this.between(view) : []);
    this.cells.data_source.data = this.merged(whole ? [] : view.ops);
    this.labels.data_source.data = this.texts(whole && this.zoom >= LEGIBLE ? view.ops : []);
    this.drawMarks();
    this.status.textContent = `${number(view.ops.length)} of ${number(this.ops)} ops${whole ? "" : ", too many to draw one by one: zoom in"}`;
  }

  boxes(ops, least = 0) {
    const [half, tall] = [Math.max(NODE.width / 2, least / this.flat(this.zoom)), Math.max(NODE.height / 2, least / this.zoom)];
    const x = (op) => this.across[op];
    const y = (op) => -this.layer[op] * NODE.down;
    return { left: ops.map((op) => x(op) - half), right: ops.map((op) => x(op) + half), bottom: ops.map((op) => y(op) - tall), top: ops.map((op) => y(op) + tall) };
  }

  words(ops) {
    const { model } = this;
    const needs = (op) => {
      const place = model.place(this.first + op);
      return place === undefined ? "not on this page" : bytes(model.steps.footprint[place]);
    };
    return { shade: ops.map((op) => 0.05 + (0.75 * Number(this.shade[op])) / 9), name: ops.map((op) => this.describe(op)), form: ops.map((op) => this.form(op)), needs: ops.map(needs) };
  }

  describe(op) {
    const step = this.first + op;
    return this.model.place(step) === undefined ? `step ${number(step)}: ${this.types[this.type[op]]}` : this.model.describe(step);
  }

  form(op) {
    const made = this.model.makes(this.first + op).filter((each) => !this.model.buffers.workspace[each]);
    return made.map((each) => this.model.form(each)).join("; ");
  }

  texts(ops) {
    const columns = 21;
    const cut = (text) => (text.length > columns ? `${text.slice(0, columns - 1)}…` : text);
    const two = (op) => [this.types[this.type[op]], this.form(op)].filter(Boolean).map(cut).join("\n");
    this.labels.glyph.text_font_size = { value: `${Math.round(10 * Math.min(14, 12 * this.zoom)) / 10}px` };
    return { x: ops.map((op) => this.across[op]), y: ops.map((op) => -this.layer[op] * NODE.down), text: ops.map(two) };
  }

  lines(hops) {
    const half = NODE.height / 2;
    const from = ([layer, , , leaves]) => -layer * NODE.down - (leaves ? half : 0);
    const to = ([layer, , , , arrives, last = layer + 1]) => -last * NODE.down + (arrives ? half : 0);
    return {
      x0: hops.map((hop) => hop[1]), x1: hops.map((hop) => hop[2]), y0: hops.map(from), y1: hops.map(to), middle: hops.map((hop) => (from(hop) + to(hop)) / 2),
    };
  }

  between({ from, to, left, right, ops }) {
    const { hop } = this;
    const within = this.hops(from - 1, to).filter((at) => Math.max(hop.from[at], hop.to[at]) >= left && Math.min(hop.from[at], hop.to[at]) <= right);
    const near = Array.from(within, (at) => [hop.layer[at], hop.from[at], hop.to[at], hop.leaves[at], hop.arrives[at]]);
    if (!this.far.length) return near;
    const seen = new Set(ops);
    return [...near, ...this.far.filter(([op, reader]) => seen.has(op) || seen.has(reader)).slice(0, MOST_DRAWN).map((pair) => this.straight(...pair))];
  }

  straight(op, reader) {
    return [this.layer[op], this.across[op], this.across[reader], 1, 1, this.layer[reader]];
  }

  /** The hops from an op to one that reads it. */
  path(op, reader) {
    const [start, end] = [this.layer[op], this.layer[reader]];
    const places = this.bends.get(op) ?? [];
    if (end - start - 1 > places.length) return [this.straight(op, reader)];
    const stops = [this.across[op], ...places.slice(0, end - start - 1), this.across[reader]];
    return stops.slice(1).map((place, index) => [start + index, stops[index], place, index ? 0 : 1, index === stops.length - 2 ? 1 : 0]);
  }

  /** Ops that lie together in a cell of a few pixels, as one rectangle. */
  merged(ops) {
    const [wide, tall] = [CELL / this.flat(this.zoom), CELL / this.zoom];
    const cells = new Map();
    for (const op of ops) {
      const [column, row] = [Math.floor(this.across[op] / wide), Math.floor((-this.layer[op] * NODE.down) / tall)];
      cells.set(`${column} ${row}`, [column, row]);
    }
    const found = [...cells.values()];
    return {
      left: found.map(([column]) => column * wide), right: found.map(([column]) => (column + 1) * wide),
      bottom: found.map(([, row]) => row * tall), top: found.map(([, row]) => (row + 1) * tall),
    };
  }

  at(x, y) {
    const [across, down] = [Math.max(NODE.width / 2, 6 / this.flat(this.zoom)), Math.max(NODE.height / 2, 6 / this.zoom)];
    let [best, nearest] = [-1, Infinity];
    for (const op of this.rows(Math.floor((-y - down) / NODE.down), Math.ceil((-y + down) / NODE.down))) {
      const [aside, apart] = [Math.abs(this.across[op] - x) / across, Math.abs(-this.layer[op] * NODE.down - y) / down];
      if (aside > 1 || apart > 1 || aside + apart >= nearest) continue;
      [best, nearest] = [op, aside + apart];
    }
    return best;
  }

  /** Mark steps: the one chosen, those before it, those after it; show the first of them. */
  mark({ chosen = [], source: sources = [], sink = [] }) {
    const here = (steps) => [...new Set(steps.map((step) => step - this.first))].filter((op) => op >= 0 && op < this.ops);
    this.marks = { chosen: here(chosen), source: here(sources), sink: here(sink) };
    const first = this.marks.chosen[0] ?? this.marks.sink[0];
    if (first === undefined || !this.opened || this.shows(first)) this.later();
    else this.reveal(first + this.first);
  }

  shows(op) {
    const [x, y] = [this.across[op], -this.layer[op] * NODE.down];
    return this.zoom >= LEGIBLE && x > this.x.start && x < this.x.end && y > this.y.start && y < this.y.end;
  }

  drawMarks() {
    for (const [name, ops] of Object.entries(this.marks)) this.outlines[name].data_source.data = this.boxes(ops, 3);
    const { chosen, source: sources, sink } = this.marks;
    const paths = (pairs) => this.lines(pairs.slice(0, 200).flatMap((pair) => this.path(...pair)));
    this.marked.source.data_source.data = paths(chosen.flatMap((op) => this.reads(op).filter((other) => sources.includes(other)).map((other) => [other, op])));
    this.marked.sink.data_source.data = paths(chosen.flatMap((op) => this.readBy(op).filter((other) => sink.includes(other)).map((other) => [op, other])));
  }

  wire(inspector) {
    const place = document.getElementById("graph");
    place.addEventListener("wheel", (event) => {
      event.preventDefault();
      event.stopPropagation();
      const box = place.getBoundingClientRect();
      const [width, height] = this.size;
      const at = [this.x.start + ((event.clientX - box.left) / width) * (this.x.end - this.x.start), this.y.end - ((event.clientY - box.top) / height) * (this.y.end - this.y.start)];
      this.zoomBy(Math.exp(-event.deltaY / 400), at);
    }, { passive: false, capture: true });
    const choose = (direction) => {
      const last = this.first + this.ops - 1;
      const at = inspector.currentStep;
      inspector.step(at < 0 ? Math.max(0, this.model.figures.peakStep) : Math.max(this.first, Math.min(last, at + direction)));
    };
    const acts = {
      in: () => this.zoomBy(1.4), out: () => this.zoomBy(1 / 1.4), left: () => this.move(-0.2, 0), right: () => this.move(0.2, 0), up: () => this.move(0, 0.2), down: () => this.move(0, -0.2),
      peak: () => this.reveal(Math.max(0, this.model.figures.peakStep)), all: () => this.whole(), next: () => choose(1), back: () => choose(-1), clear: () => inspector.clear(),
    };
    const keys = { "+": "in", "=": "in", "-": "out", _: "out", ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", 0: "all", Home: "all", p: "peak", n: "next", b: "back", Escape: "clear" };
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      acts[keys[event.key]]();
    });
    for (const each of document.querySelectorAll("[data-graph]")) each.addEventListener("click", acts[each.dataset.graph]);
  }
}
