// Puts the page together: plots into their places, and what keys and buttons do.

const FOUND_SHOWN = 40;

async function main() {
  // What Bokeh has to say of its progress is no one's business.
  Bokeh.logger.set_level("warn");
  const model = readModel();
  if (model.figures.steps === 0) {
    // There is no axis to draw on; headline and tables say all there is.
    wireTheme({ theme() {} });
    document.getElementById("theme").hidden = false;
    document.querySelector(".split").remove();
    document.documentElement.dataset.ready = "true";
    return;
  }
  const tapped = (hit) => ("step" in hit ? inspector.step(hit.step) : inspector.buffer(hit.buffer));
  const plots = new Plots(model, tapped);
  const graph = model.graph === null ? null : new GraphView(model, plots, tapped);
  const inspector = new Inspector(model, plots, graph);
  const shown = [["footprint", plots.footprint()]];
  if (document.getElementById("given")) shown.push(["given", plots.before()]);
  model.maps.forEach((_, place) => shown.push([`map${place}`, plots.map(place)]));
  plots.edge();
  if (graph) shown.push(["graph", graph.figure]);
  const frontier = model.frontier === null ? null : new Frontier(model, plots);
  if (frontier) shown.push(["points", frontier.figure]);
  if (model.curve !== null) shown.push(["curve", curve(model, plots)]);
  wireTheme(plots);
  // One document for all of them, as they share the axis of steps.
  const drawing = new Bokeh.Document();
  for (const [, figure] of shown) drawing.add_root(figure);
  await Bokeh.embed.add_document_standalone(drawing, document.body, shown.map(([id]) => document.getElementById(id)));
  const view = new View(model, plots);
  inspector.view = view;
  graph?.open();
  graph?.wire(inspector);
  wireControls(model, view, inspector);
  wireSearch(model, inspector);
  frontier?.wire();
  for (const each of document.querySelectorAll("#suggestions code")) commandLine(each.textContent, each);
  wireTables();
  wireSaving(model);
  for (const each of document.querySelectorAll("#layers [data-step]")) {
    each.addEventListener("click", () => {
      inspector.step(Number(each.dataset.step));
      document.getElementById("time").scrollIntoView({ behavior: "smooth" });
    });
  }
  for (const each of document.querySelectorAll("[data-buffer]")) {
    each.addEventListener("click", () => {
      inspector.buffer(Number(each.dataset.buffer));
      document.getElementById("map-title").scrollIntoView({ behavior: "smooth" });
    });
  }
  for (const each of document.querySelectorAll("[hidden]")) each.hidden = false;
  inspector.largest();
  document.documentElement.dataset.ready = "true";
}

/** The part that is shown: steps of all plots together, addresses of the maps. */
class View {
  constructor(model, plots) {
    this.model = model;
    this.plots = plots;
    this.status = document.getElementById("view");
    this.addresses = plots.figures.map(({ figure }) => figure.y_range).filter((range) => range.bounds !== null);
    for (const name of ["start", "end"]) plots.steps.properties[name].change.connect(() => this.tell());
    this.tell();
  }

  tell() {
    this.plots.edge();
    const { start, end } = this.plots.steps;
    const [first, last] = [Math.max(0, Math.ceil(start)), Math.min(this.model.figures.steps - 1, Math.floor(end))];
    this.status.textContent = `steps ${number(first)} to ${number(Math.max(first, last))} of ${number(this.model.figures.steps)}`;
  }

  set(range, start, end, [low, high], least) {
    const width = Math.min(high - low, Math.max(least, end - start));
    const from = Math.max(low, Math.min(high - width, (start + end - width) / 2));
    range.setv({ start: from, end: from + width });
  }

  zoom(factor, centre = (this.plots.steps.start + this.plots.steps.end) / 2) {
    const half = ((this.plots.steps.end - this.plots.steps.start) * factor) / 2;
    this.set(this.plots.steps, centre - half, centre + half, this.plots.whole, this.plots.steps.min_interval);
  }

  /** Move so that a step is shown; nothing where it is. */
  reveal(step) {
    const { start, end } = this.plots.steps;
    const half = (end - start) / 2;
    if (step < start || step > end) this.set(this.plots.steps, step - half, step + half, this.plots.whole, 1);
  }

  move(share) {
    const { start, end } = this.plots.steps;
    this.set(this.plots.steps, start + share * (end - start), end + share * (end - start), this.plots.whole, 1);
  }

  vertical(factor, share) {
    for (const range of this.addresses) {
      const [middle, half] = [(range.start + range.end) / 2 + share * (range.end - range.start), ((range.end - range.start) * factor) / 2];
      this.set(range, middle - half, middle + half, range.bounds, range.bounds[1] / 1e6);
    }
  }

  all() {
    const [start, end] = this.plots.whole;
    this.plots.steps.setv({ start, end });
    for (const range of this.addresses) range.setv({ start: range.bounds[0], end: range.bounds[1] });
    for (const { figure } of this.plots.figures) {
      if (figure.y_range.bounds === null) figure.y_range.setv({ start: (-0.06 * this.plots.highest) / this.plots.scale, end: (1.06 * this.plots.highest) / this.plots.scale });
      if (figure.x_range !== this.plots.steps) figure.x_range.setv({ start: figure.x_range.bounds[0], end: figure.x_range.bounds[1] });
    }
  }

  peak() {
    const half = Math.max(6, Math.min(30, this.model.figures.steps / 12));
    const { peakStep } = this.model.figures;
    this.set(this.plots.steps, peakStep - half, peakStep + half, this.plots.whole, 1);
  }
}

function wireControls(model, view, inspector) {
  const acts = {
    in: () => view.zoom(0.6), out: () => view.zoom(1 / 0.6), left: () => view.move(-0.2), right: () => view.move(0.2),
    peak: () => view.peak(), all: () => view.all(), taller: () => view.vertical(0.6, 0), flatter: () => view.vertical(1 / 0.6, 0),
    up: () => view.vertical(1, 0.2), down: () => view.vertical(1, -0.2), next: () => choose(1), back: () => choose(-1),
    clear: () => inspector.clear(),
    box: () => {
      const pressed = document.querySelector('[data-act="box"]');
      const zooms = pressed.getAttribute("aria-pressed") !== "true";
      pressed.setAttribute("aria-pressed", String(zooms));
      view.plots.drag(zooms);
    },
  };
  const keys = {
    "+": "in", "=": "in", "-": "out", _: "out", ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
    PageUp: "taller", PageDown: "flatter", 0: "all", Home: "all", p: "peak", n: "next", b: "back", Escape: "clear",
  };
  const { buffers } = model;
  const order = buffers.name.map((_, buffer) => buffer).filter((buffer) => buffers.drawn[buffer])
    .sort((one, other) => buffers.first[one] - buffers.first[other] || buffers.offset[one] - buffers.offset[other]);

  function choose(direction) {
    const place = order.indexOf(inspector.current);
    const next = place < 0 ? (direction > 0 ? 0 : order.length - 1) : (place + direction + order.length) % order.length;
    if (order.length) inspector.buffer(order[next]);
  }

  for (const each of document.querySelectorAll("[data-act]")) each.addEventListener("click", acts[each.dataset.act]);
  for (const plot of document.querySelectorAll(".plot:not(#graph, #points, #curve)")) {
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      acts[keys[event.key]]();
    });
  }
}

function wireSearch(model, inspector) {
  const input = document.getElementById("search");
  const found = document.getElementById("found");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    found.replaceChildren();
    if (!wanted) return;
    const rows = [];
    let count = 0;
    const offer = (text, make) => {
      if (!text.toLowerCase().includes(wanted)) return;
      count += 1;
      if (rows.length < FOUND_SHOWN) rows.push(make());
    };
    model.buffers.name.forEach((name, buffer) => offer(name, () => inspector.link(buffer)));
    model.steps.op.forEach((name, place) => offer(`${name} ${model.steps.types[model.steps.type[place]]}`, () => inspector.stepLink(model.step(place))));
    found.append(element("p", count === 0 ? "Nothing on this page has that in its name." : `${number(count)} found${count > rows.length ? `, the first ${rows.length} shown` : ""}`, "hint"), list(rows));
  });
}

function wireTheme(plots) {
  const toggle = document.getElementById("theme");
  const root = document.documentElement;
  const show = (theme) => {
    root.dataset.theme = theme;
    toggle.textContent = theme === "dark" ? "Light" : "Dark";
    plots.theme();
  };
  let screen = null;
  show(root.dataset.theme);
  toggle.addEventListener("click", () => show(root.dataset.theme === "dark" ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => show(event.matches ? "dark" : "light"));
  addEventListener("beforeprint", () => {
    screen = root.dataset.theme;
    show("light");
    // What is printed is what is on the canvas now; the next frame would be too late.
    for (const view of Bokeh.index.roots) view.paint?.();
  });
  addEventListener("afterprint", () => show(screen ?? root.dataset.theme));
}

main();
