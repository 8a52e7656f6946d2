// What the page's data says: columns of figures, and who makes and reads what. Everything is linear in their length.

function readModel() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { steps, buffers } = data;
  const placeOfStep = steps.index === null ? null : new Map(steps.index.map((step, place) => [step, place]));
  const makes = new Map();
  const reads = new Map();
  const add = (map, step, buffer) => (map.has(step) ? map.get(step).push(buffer) : map.set(step, [buffer]));
  buffers.name.forEach((_, buffer) => {
    if (buffers.made[buffer] >= 0) add(makes, buffers.made[buffer], buffer);
    for (const step of buffers.read[buffer]) add(reads, step, buffer);
  });
  return {
    ...data,
    count: buffers.name.length,
    makes: (step) => makes.get(step) ?? [],
    reads: (step) => reads.get(step) ?? [],
    place: (step) => (placeOfStep === null ? step : placeOfStep.get(step)),
    step: (place) => (steps.index === null ? place : steps.index[place]),
    describe(step) {
      const place = this.place(step);
      return place === undefined ? `step ${number(step)}` : `step ${number(step)}: ${steps.types[steps.type[place]]} ${steps.op[place]}`;
    },
    form: (buffer) => buffers.forms[buffers.form[buffer]],
    /** The smallest buffer drawn at a step and an address of a map; -1 where nothing lies. */
    at(map, step, address) {
      let best = -1;
      for (let buffer = 0; buffer < this.count; buffer++) {
        if (!buffers.drawn[buffer] || buffers.map[buffer] !== map) continue;
        if (step < buffers.first[buffer] - 0.5 || step >= buffers.last[buffer] + 0.5) continue;
        if (address < buffers.offset[buffer] || address >= buffers.offset[buffer] + buffers.size[buffer]) continue;
        if (best < 0 || buffers.size[buffer] <= buffers.size[best]) best = buffer;
      }
      return best;
    },
  };
}

// Made once: making one for each number takes a hundred times as long.
const FORMAT = new Intl.NumberFormat("en-US");

function number(value) {
  return FORMAT.format(value);
}

function bytes(value) {
  // No line ends between a figure and its unit.
  if (value < 10240) return `${number(value)}\u00a0B`;
  const [factor, unit] = value >= 10 * 2 ** 30 ? [2 ** 30, "GB"] : value >= 10 * 2 ** 20 ? [2 ** 20, "MB"] : [2 ** 10, "KB"];
  return `${number(value)}\u00a0B (${number(Math.round((10 * value) / factor) / 10)}\u00a0${unit})`;
}
