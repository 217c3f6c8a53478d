// The page: a list of runs, one of them in full, a form for the next. The server sends what changes.

import { element, federation, number, parties, plot } from "/static/draw.js";

const byId = (id) => document.getElementById(id);
const main = byId("main");
const state = { chosen: "", view: "", runs: [], run: null, picked: new Set(), catalogue: null, stream: null, forms: 0 };

async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({ error: "the page's server does not answer" }));
  if (!answer.ok) throw new Error(body.error ?? answer.statusText);
  return body;
}

// --- what changes ---

function listen() {
  state.stream?.close();
  const stream = new EventSource(`/api/events?run=${encodeURIComponent(state.chosen)}`);
  stream.onopen = () => (byId("connection").textContent = "live");
  stream.onerror = () => (byId("connection").textContent = "the page's server is away; runs go on");
  stream.addEventListener("runs", (event) => { state.runs = JSON.parse(event.data); showList(); });
  stream.addEventListener("run", (event) => {
    const run = JSON.parse(event.data);
    if (run.name !== state.chosen || state.view !== "run") return;
    state.run = run;
    guarded(() => showRun(run));
  });
  stream.addEventListener("federation", (event) => showFederation(JSON.parse(event.data)));
  state.stream = stream;
}

function showFederation(there) {
  const box = byId("federation");
  box.hidden = false;
  box.replaceChildren(
    element("h2", {}, "Deployed federation"),
    there.away
      ? element("p", { class: "loud" }, `The coordinator at ${there.coordinator} is away: ${there.away}`)
      : element("p", {}, `${there.coordinator}: ${number(there.present)} of ${number(there.parties)} parties are here, ${number(there.servers)} servers, ${number(there.records)} records.`),
    element("p", { class: "quiet" }, "This page only looks: questions are asked with tally run."),
  );
}

function showList() {
  const list = byId("runs");
  const focused = document.activeElement?.dataset?.key;
  byId("none").hidden = state.runs.length > 0;
  list.replaceChildren(...state.runs.map((run) => {
    const words = [run.statistic, run.kind === "compare" && run.state !== "running" ? "compared" : run.aggregator].filter(Boolean).join(", ");
    const doing = run.state === "running" ? run.phase || "starting" : run.state;
    const box = element("input", { type: "checkbox", "aria-label": `Put ${words}, ${run.name}, side by side`, "data-key": `box ${run.name}`, onchange: (event) => pick(run.name, event.target.checked) });
    box.checked = state.picked.has(run.name);
    return element("li", {}, box,
      element("button", { type: "button", "data-key": run.name, "aria-current": run.name === state.chosen && state.view === "run" ? "true" : null, onclick: () => choose(run.name) },
        words, " ", element("span", { class: `state ${run.state}` }, doing),
        element("small", {}, `${run.parties ? `${number(run.parties)} parties, ` : ""}${run.epsilon ? `ε ${run.epsilon}, ` : ""}${new Date(run.changed * 1000).toLocaleString("en-GB")}`)));
  }));
  if (focused) [...list.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
  byId("beside").hidden = state.picked.size < 2;
}

function pick(name, on) {
  if (on) state.picked.add(name); else state.picked.delete(name);
  byId("beside").hidden = state.picked.size < 2;
}

function choose(name) {
  Object.assign(state, { chosen: name, view: "run", run: null });
  main.replaceChildren(element("p", {}, "Reading …"));
  history.replaceState(null, "", `#${name}`);
  listen();
  showList();
  main.focus();
}

// Files in a run's folder may be of anybody's making.
function guarded(show) {
  try { show(); } catch { main.replaceChildren(element("p", { class: "loud" }, "The files in this folder are not those of a run, or are damaged: they cannot be shown.")); }
}

// --- one run ---

const section = (title, ...children) => element("section", {}, element("h3", {}, title), ...children);

function table(caption, heads, rows) {
  const numeric = heads.map((_, i) => rows.some((row) => typeof row[i] === "number"));
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads.map((head, i) => element("th", { scope: "col", class: numeric[i] ? "n" : null }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => i ? element("td", { class: numeric[i] ? "n" : null }, number(cell)) : element("th", { scope: "row" }, number(cell))))))));
}

function showRun(run) {
  const open = new Set([...main.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  const { progress, result, comparison } = run;
  const parts = [element("section", {},
    element("h2", {}, `${run.statistic}${comparison ? ", compared" : run.aggregator ? `, ${run.aggregator}` : ""} `, element("span", { class: `state ${run.state}` }, run.state)),
    run.reason ? element("p", { class: "loud" }, `Why it failed: ${run.reason}`) : null,
    ...(result?.notes ?? []).map((note) => element("p", { class: "loud" }, note)),
    element("p", { class: "quiet" }, element("code", {}, result?.command ?? progress.command ?? run.job.command ?? "")))];
  if (result) parts.push(showAnswer(run, result));
  if (comparison) parts.push(showComparison(comparison));
  // What is known of a comparison's progress is of its last aggregator alone.
  if (!comparison || run.state === "running") {
    parts.push(showQuestion(run));
    if (progress.phase) parts.push(showPhase(run));
    if (progress.states || progress.links || result?.communication) parts.push(showFederationOf(run));
    parts.push(showLedgers(run));
  }
  if (progress.events?.length)
    parts.push(section("Last events", element("ol", { class: "events" }, ...progress.events.map((each) => element("li", {}, `${new Date(each.at * 1000).toLocaleTimeString("en-GB")} ${each.text}`)))));
  if (run.files.length)
    parts.push(section("Files", element("ul", { class: "files" }, ...run.files.map((file) => element("li", {}, element("a", { href: `/files/${run.name}/${file}`, target: "_blank", rel: "noopener" }, file))))));
  main.replaceChildren(...parts);
  for (const each of main.querySelectorAll("details")) if (open.has(each.dataset.key)) each.open = true;
}

const covered = (interval) => (interval.covers === "population" ? "the noise and the sampling of the records" : "what the noise may have done");

function showAnswer(run, result) {
  const box = section("Answer");
  if (typeof result.estimate === "number") {
    box.append(element("p", { class: "big" }, number(result.estimate, 6)));
    if (result.interval) box.append(element("p", {}, `95 %: from ${number(result.interval.low, 6)} to ${number(result.interval.high, 6)}, which covers ${covered(result.interval)}`));
    if (typeof result.truth === "number") box.append(element("p", { class: "quiet" }, `Truth, known in a simulation only: ${number(result.truth, 6)}`));
  } else {
    const drawn = plot(result);
    if (drawn) box.append(drawn, element("p", { class: "quiet" }, `Line: the private estimate${result.interval ? `; band: 95 %, which covers ${covered(result.interval)}` : ""}${result.truth ? "; dashed: the truth, known in a simulation only" : ""}.`));
    else if (run.files.includes("estimate.png")) box.append(element("img", { src: `/files/${run.name}/estimate.png`, alt: `${result.statistic}: the estimate; estimate.csv has its numbers`, style: null }));
  }
  if (result.error) box.append(element("p", {}, `Error: root mean square ${number(result.error.rmse)}, largest ${number(result.error.max)}`));
  return box;
}

function showComparison(found) {
  return section("Side by side",
    table("Each aggregator's answer to the same question: error, cost and trust", ["aggregator", "rmse", "expected", "bytes per party", "rounds", "may collude"],
      found.aggregators.map((row) => [row.aggregator, row.rmse, row.expected_rmse, row.party_bytes, row.rounds, row.may_collude])),
    ...found.unable.map((row) => element("p", { class: "quiet" }, `${row.aggregator} could not answer: ${row.reason}`)));
}

function showQuestion(run) {
  const { progress, result } = run;
  const privacy = result?.privacy ?? {};
  const rows = [
    ["statistic", run.statistic],
    ["privacy", `ε = ${privacy.epsilon ?? progress.epsilon ?? run.epsilon ?? "?"}${(privacy.delta ?? progress.delta) ? `, δ = ${privacy.delta ?? progress.delta}` : ""}, protecting a ${progress.unit ?? "record"}`],
    ["noise", privacy.noise ?? progress.noise ?? "the aggregator's own placement"],
    ["data", result?.data ? `${result.data.name}: ${(result.data.columns ?? []).join(", ")}, ${number(result.data.records)} records` : null],
    ["who is trusted with what", privacy.threat_model ?? progress.trust],
  ].filter((row) => row[1]);
  return section("The question", table("What was asked, and of whom", ["", ""], rows));
}

function showPhase(run) {
  const { progress } = run;
  const left = run.state === "running" && progress.deadline ? Math.max(0, progress.deadline - (Date.now() / 1000 - progress.phase_begun)) : null;
  return section("Phase",
    element("p", {}, `${progress.phase}: ${number(progress.submissions)} of ${number(progress.parties)} parties have submitted.`,
      left != null ? ` Parties are waited for at most ${number(Math.round(left))} s more.` : progress.deadline ? ` The deadline was ${number(progress.deadline)} s.` : ""),
    element("progress", { max: progress.parties, value: Math.min(progress.submissions, progress.parties), "aria-label": "parties that have submitted" }));
}

function showFederationOf(run) {
  const { progress, result } = run;
  const links = result?.communication?.links ?? progress.links ?? {};
  const predicted = progress.predicted ?? {};
  const count = result?.federation?.parties ?? progress.parties ?? 0;
  const servers = result?.federation?.servers ?? progress.servers ?? 0;
  const box = section("Parties, servers and their links");
  if (progress.states) box.append(parties(progress.states, progress.standing ?? {}));
  if (Object.keys(links).length) {
    box.append(federation(links, count, servers));
    box.append(table(`Bytes and messages ${run.state === "running" ? "so far" : "in all"}`, ["link", "bytes", "predicted", "messages"],
      Object.entries(links).map(([name, each]) => [name.replace("->", " → "), each.bytes, predicted[name] ?? null, each.messages])));
    if (progress.party_sends) box.append(element("p", { class: "quiet" }, `Bytes that a party sends, without headers: ${progress.party_sends}; for a vector of L among n parties and m servers, k its records.`));
  }
  return box;
}

function showLedgers(run) {
  const { progress, result } = run;
  const charges = result?.charges ?? [];
  const cap = progress.cap ? `ε ${progress.cap}` : progress.runtime === "deployed" ? "its own" : "none";
  const rows = charges.length
    ? charges.map((each) => [String(each.server), cap, `ε ${each.epsilon}, δ ${each.delta}`, "charged and signed"])
    : Array.from({ length: Math.min(progress.servers ?? 0, 100) }, (_, i) => [`server-${i}`, cap, `ε ${progress.epsilon}, δ ${progress.delta}`, run.state === "running" ? "will be charged at the release" : "not charged as far as is known"]);
  if (!rows.length) return element("span");
  return section("Ledgers", table("Each server keeps its own, and refuses past its cap", ["server", "cap", "this run", ""], rows),
    progress.runtime === "deployed" ? null : element("p", { class: "quiet" }, "A simulated federation is new: nothing was spent before this run."));
}

// --- side by side ---

async function showBeside() {
  state.view = "beside";
  const names = [...state.picked];
  const found = await Promise.all(names.map((name) => ask(`/api/runs/${encodeURIComponent(name)}`).catch(() => null)));
  guarded(() => besideEachOther(found.filter((run) => run?.result)));
  main.focus();
}

function besideEachOther(runs) {
  const rows = runs.map(({ result, statistic }) => [
    `${statistic}, ${result.federation.aggregator}`,
    typeof result.estimate === "number" ? result.estimate : "curve",
    result.error?.rmse ?? null, String(result.privacy.epsilon), result.communication.party_bytes.mean,
    result.communication.total_bytes, result.communication.rounds, result.timing.total_seconds]);
  main.replaceChildren(
    element("section", {}, element("h2", {}, "Side by side"),
      rows.length ? table("Runs that have an answer", ["run", "estimate", "rmse", "ε", "bytes per party", "bytes in all", "rounds", "seconds"], rows) : element("p", {}, "None of them has an answer yet.")),
    element("div", { class: "two" }, ...runs.map((run) => element("section", {}, element("h3", {}, `${run.statistic}, ${run.result.federation.aggregator}`), plot(run.result) ?? element("p", { class: "big" }, typeof run.result.estimate === "number" ? number(run.result.estimate, 6) : "no picture")))));
}

// --- the form ---

async function showForm(action = "run", statistic = "mean") {
  state.view = "form";
  const turn = ++state.forms;
  const fields = await ask(`/api/options/${action}/${encodeURIComponent(statistic)}`);
  if (turn !== state.forms || state.view !== "form") return; // something else was chosen meanwhile
  const known = state.catalogue.statistics.find((each) => each.name === statistic);
  const again = () => showForm(form.elements.action.value, form.elements.statistic.value);
  const selected = (values, now) => values.map((value) => element("option", { value, selected: value === now }, value));
  const groups = Map.groupBy ? Map.groupBy(fields, (each) => each.group) : fields.reduce((all, each) => all.set(each.group, [...(all.get(each.group) ?? []), each]), new Map());
  const form = element("form", { onsubmit: send },
    element("h2", {}, "New run"),
    element("p", { class: "quiet" }, "In a simulated federation on this machine."),
    element("div", { class: "fields" },
      element("div", { class: "field" }, element("label", { for: "action" }, "do"), element("select", { id: "action", name: "action", onchange: again }, element("option", { value: "run", selected: action === "run" }, "run one aggregator"), element("option", { value: "compare", selected: action === "compare" }, "compare aggregators side by side"))),
      element("div", { class: "field" }, element("label", { for: "statistic" }, "statistic"), element("select", { id: "statistic", name: "statistic", onchange: again }, ...selected(state.catalogue.statistics.map((each) => each.name), statistic)), element("small", {}, known?.summary ?? ""))),
    element("p", { id: "wrong", role: "alert" }),
    ...[...groups].map(([group, inside], i) => {
      const body = element("div", { class: "fields" }, ...inside.map((each) => field(each, action)));
      return i < 1 || ["Data", "Federation", "Privacy"].includes(group) ? element("fieldset", {}, element("legend", {}, group), body) : element("details", { "data-key": group }, element("summary", {}, group), body);
    }),
    element("button", { type: "submit", class: "primary" }, "Start"));
  const before = main.querySelector("form");
  const focused = before?.contains(document.activeElement) ? document.activeElement.name : "";
  if (before) keep(before, form);
  main.replaceChildren(form);
  showList();
  (form.elements[focused || "statistic"] ?? form.elements.statistic).focus();
}

// What was filled in stays where the next form has the same field.
function keep(before, form) {
  for (const each of before.elements) {
    const now = each.name?.startsWith("--") ? form.elements[each.name] : null;
    if (!now || now.tagName !== each.tagName || now.type !== each.type) continue;
    if (each.dataset.kind === "switch") now.checked = each.checked; else if ([...(now.options ?? [{ value: each.value }])].some((option) => option.value === each.value)) now.value = each.value;
    if (now.value || now.checked) now.closest("details")?.setAttribute("open", "");
  }
}

function field(option, action) {
  const id = `option${option.flag}`;
  if (option.switch)
    return element("div", { class: "field switch" }, element("input", { type: "checkbox", id, name: option.flag, "data-kind": "switch" }), element("label", { for: id }, option.label), element("small", {}, option.help));
  const shared = { id, name: option.flag, "data-kind": option.many ? "many" : "one", "aria-describedby": `${id}-help` };
  const several = option.many && option.choices.length && action === "compare";
  const input = option.choices.length
    ? element("select", { ...shared, multiple: several }, several ? null : element("option", { value: "" }, "default"), ...option.choices.map((value) => element("option", { value }, value)))
    : element("input", { ...shared, type: "text", placeholder: option.default, autocomplete: "off", spellcheck: "false" });
  return element("div", { class: "field" }, element("label", { for: id }, option.label), input, element("small", { id: `${id}-help` }, option.help + (option.many && !option.choices.length ? " Several: separated by spaces." : "")));
}

async function send(event) {
  event.preventDefault();
  const form = event.target;
  const options = {};
  for (const each of form.elements) {
    if (!each.name?.startsWith("--")) continue;
    if (each.dataset.kind === "switch") { if (each.checked) options[each.name] = true; continue; }
    const values = each.multiple ? [...each.selectedOptions].map((option) => option.value) : each.dataset.kind === "many" ? each.value.split(/\s+/).filter(Boolean) : each.value.trim();
    if (values.length) options[each.name] = values;
  }
  const wrong = byId("wrong");
  wrong.textContent = "";
  wrong.className = "";
  try {
    const made = await ask("/api/runs", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ action: form.elements.action.value, statistic: form.elements.statistic.value, options }) });
    choose(made.name);
  } catch (error) {
    wrong.className = "loud";
    wrong.textContent = error.message;
  }
}

async function begin() {
  state.catalogue = await ask("/api/catalogue");
  byId("where").textContent = `${state.catalogue.version}, runs in ${state.catalogue.folder}`;
  byId("new").hidden = state.catalogue.deployed;
  byId("new").addEventListener("click", () => showForm());
  byId("beside").addEventListener("click", showBeside);
  byId("new").disabled = false;
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (wanted) choose(wanted); else listen();
}

begin().catch((error) => main.replaceChildren(element("p", { class: "loud" }, error.message)));
