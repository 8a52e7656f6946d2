// The panel that says what was chosen, who made it and who reads it; each name in it leads on.

class Inspector {
  constructor(model, plots, graph) {
    this.model = model;
    this.plots = plots;
    this.graph = graph;
    // Some of the table of what is live at the peak, which begins with the largest.
    this.faults = [...document.querySelectorAll("#faults [data-buffer]")].slice(0, 3).map((each) => Number(each.dataset.buffer));
    this.element = document.getElementById("inspector");
    this.current = -1;
    this.currentStep = -1;
  }

  clear() {
    this.current = this.currentStep = -1;
    this.plots.highlight({});
    this.graph?.mark({});
    this.element.replaceChildren(element("p", "Nothing is chosen. Click a rectangle, a step or an op, or find one by name.", "hint"), ...this.largestRows());
  }

  /** Choose the largest tensors of the peak together: what to look at first. */
  largest() {
    if (!this.faults.length) return this.clear();
    const made = this.faults.map((each) => this.model.buffers.made[each]).filter((step) => step >= 0);
    this.plots.highlight({ chosen: this.faults });
    this.graph?.mark({ chosen: made });
    this.element.replaceChildren(...this.largestRows());
  }

  largestRows() {
    const { buffers } = this.model;
    const rows = this.faults.map((each) => line("", this.link(each), ` ${bytes(buffers.size[each])}`));
    return rows.length ? [heading("Largest at the peak", "chosen"), list(rows)] : [];
  }

  /** The step that is shown in all pictures, if it was not before. */
  reveal(step) {
    if (step >= 0) this.view?.reveal(step);
  }

  copy(name) {
    // A name that the page has cut would not be found elsewhere.
    if (name.includes("...")) return [];
    const made = button("Copy name", async () => {
      made.textContent = (await copyText(name)) ? "Copied: paste it into Netron's search (Ctrl F)" : name;
    });
    made.title = "To find it elsewhere, such as in Netron";
    made.classList.add("copy");
    return [made];
  }

  buffer(buffer) {
    if (buffer < 0) return this.clear();
    const { model } = this;
    const { buffers } = model;
    this.current = buffer;
    this.currentStep = buffers.made[buffer];
    const made = buffers.made[buffer];
    const readers = buffers.read[buffer];
    const sources = made < 0 || buffers.workspace[buffer] ? [] : model.reads(made);
    const sinks = [...new Set(readers.flatMap((step) => model.makes(step)))].filter((each) => !buffers.workspace[each]);
    this.plots.highlight({ chosen: [buffer], source: sources, sink: sinks, made: made < 0 ? [] : [made], read: readers });
    this.graph?.mark({ chosen: made < 0 ? [] : [made], sink: readers });
    this.reveal(made < 0 ? buffers.first[buffer] : made);
    const parts = [
      element("h3", buffers.name[buffer]),
      ...(buffers.workspace[buffer] ? [] : this.copy(buffers.name[buffer])),
      ...(model.form(buffer) ? [element("p", model.form(buffer))] : []),
      element("p", `${bytes(buffers.size[buffer])} at address ${number(buffers.offset[buffer])}`),
      element("p", `in use in steps ${number(buffers.first[buffer])} to ${number(buffers.last[buffer])}`),
    ];
    if (buffers.inPlaceOf[buffer] >= 0) parts.push(line("written in place over ", this.link(buffers.inPlaceOf[buffer])));
    if (buffers.viewOf[buffer] >= 0) parts.push(line("lies in the bytes of ", this.link(buffers.viewOf[buffer])));
    parts.push(heading("Made by", "source"), list(made < 0 ? ["nothing: it is there from the start"] : [this.stepLink(made)]));
    if (sources.length) parts.push(element("h4", "from"), list(sources.map((each) => this.link(each))));
    if (!buffers.workspace[buffer]) {
      const more = buffers.readers[buffer] - readers.length;
      const rows = readers.map((step) => this.stepLink(step));
      parts.push(heading("Read by", "sink"), list(rows.length ? [...rows, ...(more > 0 ? [`and ${number(more)} more`] : [])] : ["no step: it is a result, or unused"]));
      if (sinks.length) parts.push(element("h4", "which make"), list(sinks.map((each) => this.link(each))));
    }
    this.element.replaceChildren(...parts);
  }

  step(step) {
    const { model } = this;
    const { steps, buffers } = model;
    const place = model.place(step);
    this.current = -1;
    this.currentStep = step;
    const made = model.makes(step).filter((each) => !buffers.workspace[each]);
    const read = model.reads(step);
    this.plots.highlight({ source: read, sink: made, made: [step] });
    this.graph?.mark({ chosen: [step], source: read.map((each) => buffers.made[each]), sink: made.flatMap((each) => buffers.read[each]) });
    this.reveal(step);
    const parts = [element("h3", model.describe(step))];
    if (place !== undefined) parts.push(...this.copy(steps.op[place]));
    if (place !== undefined) {
      parts.push(element("p", `needs ${bytes(steps.footprint[place])}`));
      if (steps.workspace[place]) parts.push(element("p", `of it workspace ${bytes(steps.workspace[place])}`));
      const kind = ["", "a piece of a layer", "an op that is executed again", "added by rewriting"][steps.mark[place]];
      if (kind) parts.push(element("p", kind));
    }
    parts.push(heading("Reads", "source"), list(read.length ? read.map((each) => this.link(each)) : ["nothing that is drawn"]));
    parts.push(heading("Makes", "sink"), list(made.length ? made.map((each) => this.link(each)) : ["nothing that is drawn"]));
    this.element.replaceChildren(...parts);
  }

  link(buffer) {
    return button(`${this.model.buffers.name[buffer]}`, () => this.follow(() => this.buffer(buffer)), { buffer });
  }

  stepLink(step) {
    return button(this.model.describe(step), () => this.follow(() => this.step(step)), { step });
  }

  /** Show what a link leads to; whoever follows links by keyboard goes on in the panel. */
  follow(show) {
    const inside = this.element.contains(document.activeElement);
    show();
    if (!inside) return;
    this.element.tabIndex = -1;
    this.element.focus({ preventScroll: true });
  }
}

function element(name, text, style) {
  const made = document.createElement(name);
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

/** Put a text on the clipboard, as far as the browser permits. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

function line(text, ...more) {
  const made = element("p", text);
  made.append(...more);
  return made;
}

function heading(text, key) {
  const made = element("h4", text);
  const swatch = element("span", "", `swatch ${key}`);
  made.prepend(swatch);
  return made;
}

function list(rows) {
  const made = document.createElement("ul");
  made.append(...rows.map((row) => {
    const item = document.createElement("li");
    item.append(row);
    return item;
  }));
  return made;
}

function button(text, act, data = {}) {
  const made = element("button", text, "link");
  made.type = "button";
  Object.assign(made.dataset, data);
  made.addEventListener("click", act);
  return made;
}
