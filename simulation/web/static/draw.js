// Pictures. Everything that came from a file is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text != null) made.textContent = text;
  return made;
}

export const number = (value, digits = 4) => {
  if (value == null || value === "") return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
};

export const STATES = ["waiting", "submitted", "refused", "gone"];
const COLOURS = ["--wait", "--good", "--bad", "--gone"];

// The same four marks everywhere: a ring, a disc, a cross, a bar. Colour alone tells nothing.
function mark(state, x, y, size) {
  const colour = `var(${COLOURS[state]})`;
  const r = size / 2;
  if (state === 0)
    return shape("circle", { cx: x, cy: y, r: r * 0.8, fill: "none", stroke: colour, "stroke-width": Math.max(1, size / 7) });
  if (state === 1) return shape("circle", { cx: x, cy: y, r, fill: colour });
  if (state === 2)
    return shape("path", { d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x + r} ${y - r}L${x - r} ${y + r}`, stroke: colour, "stroke-width": Math.max(1, size / 4) });
  return shape("rect", { x: x - r, y: y - r / 3, width: size, height: (2 * r) / 3, fill: colour });
}

const MOST_PARTIES = 1_000_000; // more would be dots smaller than a pixel, and take long to draw

export function parties(runs, standing) {
  if (!runs.every(([state, size]) => state in STATES && Number.isInteger(size) && size > 0)) throw new Error("no states of parties");
  const total = runs.reduce((sum, [, size]) => sum + size, 0);
  const words = STATES.map((name) => `${number(standing[name] ?? 0)} ${name}`).join(", ");
  const box = element("div");
  const columns = Math.max(1, Math.ceil(Math.sqrt(total * 3)));
  const rows = Math.ceil(total / columns);
  const cell = Math.max(4, Math.min(22, Math.floor(760 / columns)));
  if (total > MOST_PARTIES) {
    box.append(element("p", {}, `${number(total)} parties, too many to draw.`));
  } else if (total <= 1500) {
    const picture = shape("svg", { class: "parties", viewBox: `0 0 ${columns * cell} ${rows * cell}`, role: "img", "aria-label": `${number(total)} parties: ${words}` });
    if (columns * cell < 760) picture.style.maxWidth = `${columns * cell}px`;
    let at = 0;
    for (const [state, size] of runs)
      for (let i = 0; i < size; i++, at++) {
        const x = (at % columns) * cell + cell / 2;
        const y = Math.floor(at / columns) * cell + cell / 2;
        picture.append(mark(state, x, y, cell * 0.6));
      }
    box.append(picture);
  } else {
    const canvas = element("canvas", { class: "parties", width: columns * cell, height: rows * cell, role: "img", "aria-label": `${number(total)} parties: ${words}` });
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    let at = 0;
    for (const [state, size] of runs) {
      pen.fillStyle = style.getPropertyValue(COLOURS[state]);
      for (let i = 0; i < size; i++, at++) {
        const inset = state === 1 ? 0 : 1;
        pen.fillRect((at % columns) * cell + inset, Math.floor(at / columns) * cell + inset, cell - 1 - inset, cell - 1 - inset);
      }
    }
    box.append(canvas);
  }
  const legend = element("ul", { class: "legend" });
  STATES.forEach((name, state) => {
    const sign = shape("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    sign.append(mark(state, 8, 8, 12));
    legend.append(element("li", {}, sign, `${number(standing[name] ?? 0)} ${name}`));
  });
  box.append(legend);
  return box;
}

const counted = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;

// Parties, servers and the coordinator, with what their links have carried.
export function federation(links, count, servers) {
  const bytes = (name) => (links[name] ? `${number(links[name].bytes)} B` : "");
  const picture = shape("svg", { class: "federation", viewBox: "0 0 640 210", role: "img", "aria-label": `${counted(count, "party", "parties")}, ${counted(servers, "server", "servers")} and the coordinator; the table below has what their links carried` });
  const boxes = [[10, 75, counted(count, "party", "parties")], [255, 10, counted(servers, "server", "servers")], [480, 75, "coordinator"]];
  const edge = (x1, y1, x2, y2) => picture.append(shape("line", { x1, y1, x2, y2, class: "edge" }));
  const words = (x, y, text) => picture.append(shape("text", { x, y, "text-anchor": "middle", class: "quiet" }, text));
  edge(85, 75, 255, 40); edge(405, 40, 560, 75); edge(160, 110, 480, 110);
  for (const [x, y, text] of boxes) {
    picture.append(shape("rect", { x, y, width: 150, height: 60, rx: 6, class: "box" }));
    picture.append(shape("text", { x: x + 75, y: y + 35, "text-anchor": "middle" }, text));
  }
  words(120, 40, bytes("party->server") && `→ ${bytes("party->server")}`);
  words(535, 40, bytes("server->coordinator") && `→ ${bytes("server->coordinator")}`);
  words(320, 102, bytes("coordinator->party") && `← ${bytes("coordinator->party")}`);
  words(330, 90 + 75, [bytes("party->party") && `between parties ${bytes("party->party")}`, bytes("server->server") && `between servers ${bytes("server->server")}`].filter(Boolean).join(", "));
  return picture;
}

const finite = (values) => values.filter((value) => typeof value === "number" && Number.isFinite(value));

// Counts in bins are as high from one edge to the next: each value is there at both.
function binned(result) {
  const { estimate, interval, truth } = result;
  const { x } = estimate;
  const columns = Object.values(result.data?.bounds ?? {});
  const last = Array.isArray(columns[0]) ? columns[0][1] : NaN;
  const end = last > x.at(-1) ? last : 2 * x.at(-1) - x.at(-2);
  const twice = (values) => (Array.isArray(values) ? values.flatMap((value) => [value, value]) : values);
  return {
    ...result,
    estimate: { x: x.flatMap((edge, i) => [edge, x[i + 1] ?? end]), y: twice(estimate.y) },
    interval: interval && { ...interval, low: twice(interval.low), high: twice(interval.high) },
    truth: truth && { ...truth, y: twice(truth.y) },
  };
}

export function plot(result) {
  if (!Array.isArray(result.estimate?.x) || !Array.isArray(result.estimate.y) || result.estimate.x.length < 2) return null;
  const { estimate, interval, truth } = String(result.statistic).includes("histogram") ? binned(result) : result;
  // As wide as the page, so that its letters keep their size.
  const width = Math.max(300, Math.min(860, (document.getElementById("main")?.clientWidth ?? 760) - 40));
  const [height, left, right, top, bottom] = [Math.max(220, width * 0.42), 64, 12, 12, 40];
  const { x, y } = estimate;
  const band = interval && Array.isArray(interval.low) && interval.low.length === y.length ? interval : null;
  const other = truth && Array.isArray(truth.y) && truth.y.length === y.length ? truth.y : null;
  const tall = finite([...y, ...(band ? [...band.low, ...band.high] : []), ...(other ?? [])]);
  const wide = finite(x);
  if (!tall.length || wide.length !== x.length) return null;
  const [x0, x1] = [Math.min(...wide), Math.max(...wide)];
  const [y0, y1] = [Math.min(0, ...tall), Math.max(...tall)];
  const across = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - right);
  const up = (value) => height - bottom - ((value - y0) / (y1 - y0 || 1)) * (height - top - bottom);
  const picture = shape("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${result.statistic}: the estimate${band ? " with its 95 % band" : ""}${other ? ", and the truth dashed" : ""}, from ${number(x0)} to ${number(x1)}` });
  const path = (values) => values.map((value, i) => (value == null ? "" : `${i && values[i - 1] != null ? "L" : "M"}${across(x[i]).toFixed(1)} ${up(value).toFixed(1)}`)).join("");
  if (band) {
    const forth = band.high.map((value, i) => `${across(x[i]).toFixed(1)},${up(value ?? y1).toFixed(1)}`);
    const back = band.low.map((value, i) => `${across(x[i]).toFixed(1)},${up(value ?? y0).toFixed(1)}`).reverse();
    picture.append(shape("polygon", { points: [...forth, ...back].join(" "), class: "band" }));
  }
  if (other) picture.append(shape("path", { d: path(other), class: "truth" }));
  picture.append(shape("path", { d: path(y), class: "line" }));
  picture.append(shape("line", { x1: left, y1: height - bottom, x2: width - right, y2: height - bottom, class: "axis" }));
  picture.append(shape("line", { x1: left, y1: top, x2: left, y2: height - bottom, class: "axis" }));
  for (const [value, anchor] of [[x0, "start"], [(x0 + x1) / 2, "middle"], [x1, "end"]])
    picture.append(shape("text", { x: across(value), y: height - bottom + 18, "text-anchor": anchor, class: "quiet" }, number(value, 3)));
  for (const value of [y0, (y0 + y1) / 2, y1])
    picture.append(shape("text", { x: left - 6, y: up(value) + 4, "text-anchor": "end", class: "quiet" }, number(value, 3)));
  const columns = result.data?.columns;
  picture.append(shape("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, Array.isArray(columns) && columns.length === 1 ? String(columns[0]) : "x"));
  return picture;
}
