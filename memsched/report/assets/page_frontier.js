// What less memory costs: points, each with the command that asks for it.

/** A command whose lines end between its words: browsers would part "--" from what follows. */
function commandLine(text, made = element("code", "")) {
  made.replaceChildren(...text.split(" ").flatMap((word, place) => [...(place ? [" "] : []), element("span", word)]));
  return made;
}

class Frontier {
  constructor(model, plots) {
    this.points = model.frontier;
    this.current = -1;
    const { size, work, how, what } = this.points;
    const scale = model.unit.factor;
    const figure = Bokeh.Plotting.figure({ height: 220, sizing_mode: "stretch_width", toolbar_location: null, tools: [], min_border_right: 12, min_border_left: 64 });
    const [x, y] = [figure.below[0], figure.left[0]];
    Object.assign(x, { axis_label: "multiply-accumulates added, %", axis_label_text_font_style: "normal" });
    Object.assign(y, { axis_label: `${what === "arena" ? what : "peak"}, ${model.unit.name}`, axis_label_text_font_style: "normal" });
    y.formatter = new Bokeh.NumeralTickFormatter({ format: scale === 1 ? "0,0" : "0,0.[00]" });
    figure.y_range = new Bokeh.Range1d({ start: 0, end: (1.08 * Math.max(...size)) / scale });
    for (const axis of [x, y]) axis.ticker.num_minor_ticks = 0;
    const data = source({ x: work, y: size.map((value) => value / scale), size: size.map(bytes), how });
    plots.paint(figure.step({ x: { field: "x" }, y: { field: "y" }, mode: "after", source: data, line_width: 1.4 }), { line_color: "bound" });
    const drawn = plots.paint(figure.scatter({ x: { field: "x" }, y: { field: "y" }, size: 9, source: data }), { fill_color: "after", line_color: "panel" });
    this.mark = plots.paint(figure.scatter({ x: { field: "x" }, y: { field: "y" }, size: 15, source: source({ x: [], y: [] }), fill_alpha: 0.4, line_width: 2 }), { fill_color: "chosen", line_color: "chosen" });
    plots.hover(figure, [drawn], [[what, "@size"], ["work, +%", "@x{0.00}"], ["by", "@how"]]);
    figure.on_event("tap", (event) => this.choose(this.nearest(event.sx, event.sy)));
    plots.others.push(figure);
    this.scale = scale;
    this.figure = figure;
  }

  nearest(left, top) {
    const view = Object.values(Bokeh.index.roots ?? Bokeh.index).find((each) => each.model === this.figure);
    const { x_scale, y_scale } = (view.frame ? view : view.child_views[0]).frame;
    const { work, size } = this.points;
    const away = work.map((value, point) => Math.hypot(x_scale.compute(value) - left, y_scale.compute(size[point] / this.scale) - top));
    return away.reduce((best, each, point) => (each < away[best] ? point : best), 0);
  }

  choose(point) {
    const { size, work, how, command, what } = this.points;
    this.current = point;
    this.mark.data_source.data = { x: [work[point]], y: [size[point] / this.scale] };
    const text = element("span", `${what}: ${bytes(size[point])} by ${how[point]}, for ${number(Math.round(100 * work[point]) / 100)} % more multiply-accumulates. `);
    const parts = command[point] ? [element("span", "To ask for it: "), commandLine(command[point])] : [];
    document.getElementById("point").replaceChildren(text, ...parts);
  }

  wire() {
    const last = this.points.size.length - 1;
    const steps = { n: 1, ArrowRight: 1, b: -1, ArrowLeft: -1 };
    document.getElementById("points").addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in steps)) return;
      event.preventDefault();
      this.choose(Math.max(0, Math.min(last, this.current + steps[event.key])));
    });
  }
}

/** Memory against size: a line for activations, one for processes, and the budget. */
function curve(model, plots) {
  const { dimension, at, size, requested, process, budget } = model.curve;
  const megabyte = 1024 * 1024;
  const figure = Bokeh.Plotting.figure({ height: 220, sizing_mode: "stretch_width", toolbar_location: null, tools: [], min_border_right: 12, min_border_left: 64 });
  const [x, y] = [figure.below[0], figure.left[0]];
  Object.assign(x, { axis_label: dimension, axis_label_text_font_style: "normal" });
  Object.assign(y, { axis_label: "MB", axis_label_text_font_style: "normal" });
  x.formatter = new Bokeh.NumeralTickFormatter({ format: "0,0" });
  y.formatter = new Bokeh.NumeralTickFormatter({ format: "0,0.[00]" });
  figure.y_range = new Bokeh.Range1d({ start: 0, end: (1.08 * Math.max(1, ...requested, ...process)) / megabyte });
  for (const axis of [x, y]) axis.ticker.num_minor_ticks = 0;
  [["activations", requested, "after"], ["process", process, "before"]].forEach(([what, values, name]) => {
    if (!values.length) return;
    const data = source({ x: at, y: values.map((value) => value / megabyte), size, bytes: values.map(bytes) });
    plots.paint(figure.line({ x: { field: "x" }, y: { field: "y" }, source: data, line_width: 1.4 }), { line_color: name });
    const drawn = plots.paint(figure.scatter({ x: { field: "x" }, y: { field: "y" }, size: 8, source: data }), { fill_color: name, line_color: "panel" });
    plots.hover(figure, [drawn], [["size", "@size"], [what, "@bytes"]]);
  });
  if (budget !== null) plots.span(figure, "width", budget / megabyte, "budget", [8, 3]);
  plots.others.push(figure);
  return figure;
}
