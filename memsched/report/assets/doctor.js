// The sessions as points: memory of the process against processor time.
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const figure = Bokeh.Plotting.figure({ height: 320, sizing_mode: "stretch_width", toolbar_location: null, tools: ["pan", "wheel_zoom", "reset"] });
Object.assign(figure.below[0], { axis_label: "processor time, x that of a session without options" });
Object.assign(figure.left[0], { axis_label: "memory of the process, MB" });
const source = new Bokeh.ColumnDataSource({ data: { x: data.x, y: data.y, name: data.name, best: data.best, alpha: data.best.map((best) => best ? 1 : 0.35) } });
figure.scatter({ x: { field: "x" }, y: { field: "y" }, fill_alpha: { field: "alpha" }, size: 11, source });
figure.add_tools(new Bokeh.HoverTool({ tooltips: [["session", "@name"], ["process, MB", "@y{0.0}"], ["time", "@x{0.00} x"]] }));
figure.background_fill_color = figure.border_fill_color = colour("surface") || null;
Bokeh.Plotting.show(figure, document.getElementById("sessions"));
})();
