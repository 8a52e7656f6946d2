// Pictures saved as SVG, tables as CSV, and tables sorted by a column.

function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  // Not at once: browsers begin to read it later.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A cell of a CSV file; a text that a spreadsheet would calculate begins with an apostrophe. */
function cell(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveRows(name, rows) {
  save(name, "text/csv", rows.map((row) => `${row.map(cell).join(",")}\n`).join(""));
}

/** A figure as it is written without marks between thousands. */
function figure(text) {
  const plain = text.replaceAll(",", "").replace(/ [B%]$/, "");
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : text;
}

function tableRows(table) {
  const heads = [...table.querySelectorAll("th")].map((head) => head.textContent);
  // "memory, before" and "after" beside it: a column of a file has a name of its own.
  const names = heads.map((name, place) => (name === "after" ? heads[place - 1].replace("before", "after") : name));
  const read = (cells) => [...cells].map((each) => (each.classList.contains("number") ? figure(each.textContent) : each.textContent));
  return [names, ...[...table.tBodies[0].rows].map((row) => read(row.cells))];
}

function wireTables() {
  for (const table of document.querySelectorAll(".scroll table")) {
    const heads = [...table.querySelectorAll("th")];
    if (!heads.some((head) => head.textContent)) continue;
    const region = table.parentElement;
    const title = region.getAttribute("aria-label");
    const made = element("button", "CSV");
    made.type = "button";
    made.className = "save";
    made.title = `Save as CSV: ${title}`;
    made.addEventListener("click", () => saveRows(`${MODEL_NAME.value}_${title.toLowerCase().replace(/[^a-z]+/g, "_")}.csv`, tableRows(table)));
    region.after(made);
    if (table.id === "layers") heads.forEach((head, column) => wireSorting(table, head, column));
  }
}

const MODEL_NAME = { value: "model" };

function wireSorting(table, head, column) {
  const text = head.textContent;
  const press = element("button", text, "sort");
  press.type = "button";
  head.replaceChildren(press);
  press.addEventListener("click", () => {
    const numbers = head.classList.contains("number");
    // Figures are first of interest where they are large.
    const falling = head.ariaSort === null ? numbers : head.ariaSort === "ascending";
    for (const each of table.querySelectorAll("th")) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = (row) => (numbers ? Number(row.cells[column].textContent.replaceAll(",", "") || -1) : row.cells[column].textContent);
    const keyed = [...table.tBodies[0].rows].map((row) => [key(row), row]);
    keyed.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0) * (falling ? -1 : 1));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  });
}

function wireSaving(model) {
  MODEL_NAME.value = model.name;
  for (const each of document.querySelectorAll("[data-svg]")) {
    each.addEventListener("click", async () => {
      for (const id of each.dataset.svg.trim().split(" ")) {
        const place = document.getElementById(id);
        const view = Object.values(Bokeh.index.roots ?? Bokeh.index).find((one) => place.contains(one.el));
        save(`${model.name}_${id}.svg`, "image/svg+xml", await (await view.export("svg").to_blob()).text());
      }
    });
  }
  const { buffers } = model;
  document.getElementById("buffers-csv")?.addEventListener("click", () => {
    const heads = ["buffer", "shape and type", "address", "bytes", "first step", "last step", "workspace"];
    const rows = buffers.name.map((name, each) => [name, model.form(each), buffers.offset[each], buffers.size[each], buffers.first[each], buffers.last[each], buffers.workspace[each]]);
    saveRows(`${model.name}_buffers.csv`, [heads, ...rows]);
  });
}
