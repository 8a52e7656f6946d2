// The pictures, drawn by Bokeh: footprints per step, and one address map per memory, on one axis of steps.

const EDGED_STEPS = 1500;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function source(columns) {
  return new Bokeh.ColumnDataSource({ data: columns });
}

class Plots {
  constructor(model, onTap) {
    this.model = model;
    this.onTap = onTap;
    this.figures = [];
    this.others = [];
    this.painted = [];
    this.edged = [];
    this.edges = true;
    this.scale = model.unit.factor;
    const last = Math.max(1, model.figures.steps);
    this.whole = [-0.5, last - 0.5];
    this.steps = new Bokeh.Range1d({ start: -0.5, end: last - 0.5, bounds: this.whole, min_interval: Math.min(4, last) });
    this.highest = Math.max(...[model.figures.peak, model.given?.peak, model.figures.budget, model.figures.bound].filter((value) => value != null), 1);
    // A budget that is never reached needs no room.
    const needed = Math.max(model.figures.peak, model.given?.peak ?? 0, 1);
    this.highest = Math.min(this.highest, 1.6 * needed);
  }

  /** Remember which property of a glyph has which of the page's colours. */
  paint(renderer, colours) {
    for (const name of ["glyph", "nonselection_glyph", "hover_glyph", "muted_glyph"]) {
      const glyph = renderer[name];
      if (glyph && typeof glyph === "object") this.painted.push([glyph, colours]);
    }
    return renderer;
  }

  figure(height, xRange, yRange, yLabel) {
    const figure = Bokeh.Plotting.figure({
      height, sizing_mode: "stretch_width", x_range: xRange, y_range: yRange, toolbar_location: null, tools: [], min_border_right: 12, min_border_left: 64,
    });
    const pan = new Bokeh.PanTool();
    const box = new Bokeh.BoxZoomTool();
    const wheel = new Bokeh.WheelZoomTool({ dimensions: "width" });
    figure.add_tools(pan, box, wheel);
    figure.toolbar.active_drag = pan;
    figure.toolbar.active_scroll = wheel;
    const [x, y] = [figure.below[0], figure.left[0]];
    Object.assign(x, { axis_label: "step", axis_label_text_font_style: "normal" });
    x.ticker.min_interval = 1;
    x.ticker.num_minor_ticks = 0;
    x.formatter = new Bokeh.NumeralTickFormatter({ format: "0,0" });
    y.formatter = new Bokeh.NumeralTickFormatter({ format: this.scale === 1 ? "0,0" : "0,0.[00]" });
    Object.assign(y, { axis_label: yLabel, axis_label_text_font_style: "normal" });
    y.ticker.num_minor_ticks = 0;
    this.figures.push({ figure, pan, box });
    return figure;
  }

  bytesAxis() {
    return new Bokeh.Range1d({ start: -0.06 * this.highest / this.scale, end: 1.06 * this.highest / this.scale });
  }

  quads(figure, columns, paint, options = {}) {
    const renderer = figure.quad({
      left: { field: "left" }, right: { field: "right" }, bottom: { field: "bottom" }, top: { field: "top" },
      source: source({ left: [], right: [], bottom: [], top: [], ...columns }), line_width: 0.6, ...options,
    });
    return this.paint(renderer, paint);
  }

  span(figure, dimension, location, name, dash) {
    const span = new Bokeh.Span({ dimension, location, line_width: 1.4, line_dash: dash });
    figure.add_layout(span);
    this.painted.push([span, { line_color: name }]);
  }

  line(figure, xs, ys, name, filled) {
    const data = source({ x: xs, y: ys, zero: xs.map(() => 0) });
    if (filled) this.paint(figure.varea_step({ x: { field: "x" }, y1: { field: "zero" }, y2: { field: "y" }, step_mode: "center", source: data, fill_alpha: 0.16 }), { fill_color: name });
    this.paint(figure.step({ x: { field: "x" }, y: { field: "y" }, mode: "center", source: data, line_width: filled ? 1.6 : 1.3 }), { line_color: name });
  }

  hover(figure, renderers, tooltips) {
    figure.add_tools(new Bokeh.HoverTool({ renderers, tooltips, point_policy: "follow_mouse" }));
  }

  /** Invisible columns that know what their steps need, as lines cannot be pointed at. */
  columns(figure, index, more) {
    const edges = index.map((step, place) => (place ? (step + index[place - 1]) / 2 : step - 0.5));
    const right = index.map((step, place) => (place + 1 < index.length ? edges[place + 1] : step + 0.5));
    return this.quads(figure, {
      left: edges, right, bottom: edges.map(() => -this.highest / this.scale), top: edges.map(() => (2 * this.highest) / this.scale), ...more,
    }, {}, { fill_alpha: 0, line_alpha: 0, hover_fill_alpha: 0.1, hover_line_alpha: 0, hover_fill_color: "gray" });
  }

  footprint() {
    const { model } = this;
    const { steps, given, figures } = model;
    const figure = this.figure(320, this.steps, this.bytesAxis(), model.unit.name);
    const index = steps.op.map((_, place) => model.step(place));
    const overlaid = given !== null && given.total === figures.steps;
    this.bands = this.quads(figure, { kind: [] }, { fill_color: "source" }, { fill_alpha: 0.35, line_alpha: 0 });
    this.readBands = this.quads(figure, {}, { fill_color: "sink" }, { fill_alpha: 0.35, line_alpha: 0 });
    if (overlaid) this.line(figure, given.index ?? given.op.map((_, place) => place), given.footprint.map((value) => value / this.scale), "before", false);
    this.line(figure, index, steps.footprint.map((value) => value / this.scale), "after", true);
    this.marks(figure, index);
    if (figures.peakStep >= 0) {
      this.paint(figure.scatter({ x: [figures.peakStep], y: [figures.peak / this.scale], marker: "inverted_triangle", size: 11 }), { fill_color: "after", line_color: "panel" });
      if (overlaid) this.paint(figure.scatter({ x: [given.peakStep], y: [given.peak / this.scale], marker: "inverted_triangle", size: 10 }), { fill_color: "before", line_color: "panel" });
    }
    this.span(figure, "width", figures.peak / this.scale, "after", [2, 4]);
    if (overlaid) this.span(figure, "width", given.peak / this.scale, "before", [2, 4]);
    if (figures.bound > 0 && figures.bound < figures.peak) this.span(figure, "width", figures.bound / this.scale, "bound", [6, 4]);
    if (figures.budget !== null) this.span(figure, "width", figures.budget / this.scale, "budget", [8, 3]);
    const more = {
      step: index.map(number), op: steps.op, type: steps.type.map((type) => steps.types[type]),
      needs: steps.footprint.map(bytes), work: steps.workspace.map(bytes),
    };
    const tooltips = [["step", "@step"], ["op", "@type @op"], ["needs", "@needs"]];
    if (steps.workspace.some((value) => value > 0)) tooltips.push(["of it workspace", "@work"]);
    if (overlaid && given.index === null && steps.index === null) {
      more.before = given.footprint.map((value, step) => `${bytes(value)}, ${given.op[step]}`);
      tooltips.push(["file's order", "@before"]);
    }
    this.hover(figure, [this.columns(figure, index, more)], tooltips);
    figure.on_event("tap", (event) => this.onTap({ step: this.nearest(event.x) }));
    return figure;
  }

  /** The file's own order where it has other steps than the order shown. */
  before() {
    const { given } = this.model;
    const range = new Bokeh.Range1d({ start: -0.5, end: given.total - 0.5, bounds: [-0.5, given.total - 0.5] });
    const figure = this.figure(210, range, this.bytesAxis(), this.model.unit.name);
    const index = given.index ?? given.op.map((_, place) => place);
    this.line(figure, index, given.footprint.map((value) => value / this.scale), "before", true);
    this.span(figure, "width", given.peak / this.scale, "before", [2, 4]);
    this.paint(figure.scatter({ x: [given.peakStep], y: [given.peak / this.scale], marker: "inverted_triangle", size: 10 }), { fill_color: "before", line_color: "panel" });
    const more = { step: index.map(number), op: given.op, needs: given.footprint.map(bytes) };
    this.hover(figure, [this.columns(figure, index, more)], [["step", "@step"], ["op", "@op"], ["needs", "@needs"]]);
    return figure;
  }

  /** A band below the axis for steps that a rewrite made: runs of the same kind are one rectangle. */
  marks(figure, index) {
    const { mark } = this.model.steps;
    const low = (-0.05 * this.highest) / this.scale;
    ["", "piece", "again", "added"].forEach((name, kind) => {
      if (!kind) return;
      const [left, right] = [[], []];
      mark.forEach((value, place) => {
        if (value !== kind) return;
        if (right.length && right[right.length - 1] === index[place] - 0.5) right[right.length - 1] = index[place] + 0.5;
        else { left.push(index[place] - 0.5); right.push(index[place] + 0.5); }
      });
      if (left.length) this.quads(figure, { left, right, bottom: left.map(() => low), top: left.map(() => low / 5) }, { fill_color: name, line_color: name });
    });
  }

  map(place) {
    const { model } = this;
    const { buffers, figures } = model;
    const height = model.maps[place].height;
    const addresses = new Bokeh.Range1d({ start: 0, end: (1.01 * height) / this.scale, bounds: [0, (1.01 * height) / this.scale] });
    const figure = this.figure(440, this.steps, addresses, `address, ${model.unit.name}`);
    const merged = model.merged.filter((row) => row[0] === place);
    this.quads(figure, {
      left: merged.map((row) => row[1] - 0.5), right: merged.map((row) => row[2] - 0.5),
      bottom: merged.map((row) => row[3] / this.scale), top: merged.map((row) => row[4] / this.scale),
    }, { fill_color: "merged" }, { line_alpha: 0 });
    const classes = { buffer: [], other: [], work: [], atpeak: [] };
    for (let buffer = 0; buffer < model.count; buffer++) {
      if (!buffers.drawn[buffer] || buffers.map[buffer] !== place) continue;
      const atPeak = buffers.first[buffer] <= figures.peakStep && figures.peakStep <= buffers.last[buffer];
      classes[buffers.workspace[buffer] ? "work" : atPeak ? "atpeak" : buffer % 2 ? "other" : "buffer"].push(buffer);
    }
    const drawn = Object.entries(classes).map(([name, members]) => {
      const hatch = name === "work" ? { hatch_pattern: "/", hatch_alpha: 0.5, hatch_scale: 6, hatch_weight: 1 } : {};
      const paint = { fill_color: name, line_color: "edge", ...(name === "work" ? { hatch_color: "edge" } : {}) };
      this.edged.push([paint, name]);
      return this.quads(figure, this.rectangles(members), paint, hatch);
    });
    if (figures.peakStep >= 0) this.span(figure, "height", figures.peakStep, "after", [2, 4]);
    const outline = (name) => this.quads(figure, this.rectangles([]), { line_color: name, fill_color: name }, { fill_alpha: 0.22, line_width: 2.2 });
    this.chosen ??= [];
    this.chosen[place] = { source: outline("source"), sink: outline("sink"), chosen: outline("chosen") };
    this.hover(figure, drawn, [["buffer", "@name"], ["size", "@size"], ["address", "@offset"], ["in use", "@steps"]]);
    figure.on_event("tap", (event) => this.onTap({ buffer: model.at(place, event.x, event.y * this.scale) }));
    return figure;
  }

  rectangles(members) {
    const { buffers } = this.model;
    return {
      left: members.map((buffer) => buffers.first[buffer] - 0.5),
      right: members.map((buffer) => buffers.last[buffer] + 0.5),
      bottom: members.map((buffer) => buffers.offset[buffer] / this.scale),
      top: members.map((buffer) => (buffers.offset[buffer] + buffers.size[buffer]) / this.scale),
      name: members.map((buffer) => buffers.name[buffer]),
      size: members.map((buffer) => bytes(buffers.size[buffer])),
      offset: members.map((buffer) => number(buffers.offset[buffer])),
      steps: members.map((buffer) => `steps ${number(buffers.first[buffer])} to ${number(buffers.last[buffer])}`),
    };
  }

  nearest(x) {
    const { steps, figures } = this.model;
    const step = Math.max(0, Math.min(figures.steps - 1, Math.round(x)));
    if (steps.index === null || this.model.place(step) !== undefined) return step;
    return steps.index.reduce((best, each) => (Math.abs(each - x) < Math.abs(best - x) ? each : best), steps.index[0]);
  }

  /** Outline buffers, and mark the steps that make and read what was chosen. */
  highlight({ chosen = [], source: sources = [], sink = [], made = [], read = [] }) {
    const { buffers } = this.model;
    this.chosen?.forEach((outlines, place) => {
      const here = (members) => this.rectangles(members.filter((buffer) => buffers.map[buffer] === place && buffers.drawn[buffer]));
      outlines.chosen.data_source.data = here(chosen);
      outlines.source.data_source.data = here(sources);
      outlines.sink.data_source.data = here(sink);
    });
    const band = (members) => ({
      left: members.map((step) => step - 0.5), right: members.map((step) => step + 0.5),
      bottom: members.map(() => -this.highest / this.scale), top: members.map(() => (2 * this.highest) / this.scale),
    });
    this.bands.data_source.data = band(made);
    this.readBands.data_source.data = band(read);
  }

  theme() {
    const [ink, soft, line, grid, panel] = ["ink", "soft", "line", "grid", "panel"].map(colour);
    for (const figure of [...this.figures.map((each) => each.figure), ...this.others]) {
      Object.assign(figure, { background_fill_color: panel, border_fill_color: panel, outline_line_color: line });
      for (const axis of [...figure.below, ...figure.left]) {
        Object.assign(axis, { axis_label_text_color: soft, major_label_text_color: ink, axis_line_color: line, major_tick_line_color: line });
      }
      for (const each of figure.center) if (each instanceof Bokeh.Grid) each.grid_line_color = grid;
    }
    for (const [model, colours] of this.painted) {
      for (const [property, name] of Object.entries(colours)) model[property] = model instanceof Bokeh.Span ? colour(name) : { value: colour(name) };
    }
  }

  /** Edges part rectangles that can be told apart; those narrower than their edges would vanish behind them. */
  edge() {
    const wide = this.steps.end - this.steps.start < EDGED_STEPS;
    if (wide === this.edges) return;
    this.edges = wide;
    for (const [paint, name] of this.edged) paint.line_color = wide ? "edge" : name;
    this.theme();
  }

  drag(zooms) {
    for (const { figure, pan, box } of this.figures) figure.toolbar.active_drag = zooms ? box : pan;
    for (const { pan, box } of this.figures) [pan.active, box.active] = [!zooms, zooms];
  }
}
