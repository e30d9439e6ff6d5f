"use strict";
// The viewer: a table of runs and their curves, or the page of one run, kept up to date.
document.addEventListener("DOMContentLoaded", () => {
  const { all, charts, resort } = globalThis.fedbench;
  const every = 3000; // milliseconds
  const find = (selector) => document.querySelector(selector);
  const live = find(".live");
  const own = live.dataset.run; // on the page of a run
  const show = charts(live);

  const say = (selector, text) => {
    const place = find(selector);
    if (place.textContent !== text) place.textContent = text;
  };
  const link = (run) => `/run/${run.id}`;
  const message = (page) => new DOMParser().parseFromString(page, "text/html").body.textContent.trim();

  function element(tag, text, properties = {}) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(text);
    return made;
  }

  async function fetched(url) {
    let answer;
    let text;
    try {
      answer = await fetch(url);
      text = await answer.text();
    } catch {
      throw new Error("The viewer does not answer; it may have ended.");
    }
    if (!answer.ok) throw new Error(message(text) || `The viewer answers with status ${answer.status}.`);
    return JSON.parse(text);
  }

  // Shows the error of an action, until an action succeeds.
  async function attempt(action) {
    try {
      await action();
      all(".lost").forEach((line) => line.remove());
    } catch (error) {
      if (!find(".lost")) find("header").append(element("p", "", { className: "why odd lost" }));
      say(".lost", error.message);
    }
  }

  // The curves, fetched again when one of the runs has a new round.
  let asked = 0; // number of the latest request: only its answer is shown
  let drawn = null; // the runs in the charts, or "" if that is unknown
  async function draw(runs, text) {
    const request = ++asked;
    const key = JSON.stringify(runs.map((run) => [run.id, run.round, run.state]));
    say(".drawn", text);
    if (key === drawn) return;
    const specs = runs.length ? await fetched(`/charts.json?${new URLSearchParams(runs.map((run) => ["run", run.id]))}`) : [];
    if (request !== asked) return;
    const first = drawn === null;
    drawn = "";
    live.parentElement.hidden = !specs.length;
    await show(specs);
    if (request === asked) drawn = key;
    if (first) dispatchEvent(new Event("scroll")); // marks the section again, now that the page has its height
  }

  // ---- the page of one run

  async function one(rows) {
    const run = rows.find(({ id }) => id === own);
    if (!run || run.state !== live.dataset.state) return location.reload();
    say(".progress", `round ${run.round}${run.rounds === null ? "" : ` of ${run.rounds}`}`);
    await draw([run], run.round ? "" : "No round after the first evaluation yet.");
  }

  // ---- the table

  const body = find(".runs-table tbody");
  const sought = find("#sought");
  const chosen = new Set();
  const known = new Map(); // row and run by id
  const number = (value) => (value === null ? "–" : value.toFixed(2));

  function age(seconds) {
    for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
    return `${Math.max(0, Math.floor(seconds))} s`;
  }

  function cell(text, value) {
    const made = element("td", text, { className: "num" });
    if (value !== undefined) made.dataset.v = value ?? "";
    return made;
  }

  function row(run) {
    const box = element("input", "", { type: "checkbox", checked: chosen.has(run.id) });
    box.setAttribute("aria-label", `Curves of ${run.path}`);
    box.addEventListener("change", () => {
      if (box.checked) chosen.add(run.id); else chosen.delete(run.id);
      attempt(curves);
    });
    const name = element("span", box, { className: "name-of-run" });
    name.append(element("a", run.setting, { href: link(run) }));
    const head = element("th", name, { scope: "row" });
    const method = element("td", run.algo);
    method.append(element("span", run.settings, { className: "settings" }));
    const state = element("td", element("span", run.state, { className: `badge ${run.tone}`, title: run.error ?? "" }));
    const made = element("tr", head, { className: "row" });
    made.append(
      method, element("td", run.model), cell(run.seed), cell(`${run.round}/${run.rounds ?? "?"}`, run.round), state,
      cell(number(run.accuracy_mean), run.accuracy_mean), cell(number(run.accuracy_worst30), run.accuracy_worst30),
      cell(number(run.accuracy_std), run.accuracy_std), cell("", -run.updated),
    );
    return made;
  }

  function fill(rows) {
    const focused = document.activeElement;
    const ids = new Set(rows.map(({ id }) => id));
    for (const [id, { at }] of known) if (!ids.has(id)) { at.remove(); known.delete(id); chosen.delete(id); }
    let changed = false;
    rows.forEach((run, place) => {
      const text = JSON.stringify(run);
      const old = known.get(run.id);
      if (old?.text === text) return;
      const at = row(run);
      Object.assign(at, { id: `run-${run.id}` });
      at.dataset.at = place;
      if (old) old.at.replaceWith(at); else body.append(at);
      known.set(run.id, { run, text, at });
      changed = true;
    });
    rows.forEach(({ id }, place) => { known.get(id).at.dataset.at = place; });
    if (changed) resort(body.parentElement);
    if (focused === document.activeElement) return;
    // its row has been replaced or moved
    document.getElementById(focused.closest("tr").id)?.querySelector(focused.localName).focus({ preventScroll: true });
  }

  function states(rows) {
    const counts = new Map();
    for (const { state, tone } of rows) counts.set(state, { tone, count: (counts.get(state)?.count ?? 0) + 1 });
    const text = JSON.stringify([...counts]);
    const place = find(".states");
    if (place.dataset.shown === text) return;
    place.dataset.shown = text;
    const focused = document.activeElement;
    place.replaceChildren(...[...counts].map(([state, { tone, count }]) => {
      const button = element("button", `${count} ${state}`, { type: "button", className: `badge ${tone}` });
      button.dataset.of = state;
      button.addEventListener("click", () => { sought.value = sought.value === state ? "" : state; filter(); });
      return button;
    }));
    if (focused !== document.activeElement) place.querySelector(`[data-of="${focused.dataset.of}"]`)?.focus({ preventScroll: true });
  }

  function filter() {
    const words = sought.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { run, at } of known.values()) {
      const text = [run.path, run.setting, run.algo, run.settings, run.model, run.state, `seed ${run.seed}`].join(" ").toLowerCase();
      at.hidden = !words.every((word) => text.includes(word));
      count += !at.hidden;
    }
    say(".shown", words.length ? `${count} of ${known.size} runs shown` : "");
    const nothing = find(".nothing");
    nothing.hidden = count > 0;
    nothing.textContent = known.size ? "No run matches the filter." : "There are no runs yet.";
  }

  function ages() {
    const now = Date.now() / 1000;
    for (const { run, at } of known.values()) at.lastElementChild.textContent = age(now - run.updated);
  }

  // The curves of the chosen runs, else of the running ones, else of the latest; those already shown stay.
  let shown = new Set();
  function curves() {
    const most = Number(live.dataset.most);
    const runs = [...known.values()].map(({ run }) => run).sort((a, b) => b.updated - a.updated);
    let [some, text] = [runs.filter(({ id }) => chosen.has(id)), "Chosen runs"];
    if (!some.length) [some, text] = [runs.filter(({ state }) => state === "running"), "Running runs; choose others in the table"];
    if (!some.length) [some, text] = [runs.slice(0, 4), "The latest runs; choose others in the table"];
    const rest = some.length > most ? `: ${most} of ${some.length}` : "";
    some.sort((a, b) => shown.has(b.id) - shown.has(a.id));
    some = some.slice(0, most).sort((a, b) => (a.id < b.id ? -1 : 1));
    shown = new Set(some.map(({ id }) => id));
    return draw(some, runs.length ? `${text}${rest}.` : "");
  }

  async function table(rows) {
    fill(rows);
    states(rows);
    filter();
    ages();
    await curves();
  }

  sought?.addEventListener("input", filter);

  // ---- both

  async function poll() {
    if (!document.hidden) await attempt(async () => (own === undefined ? table : one)(await fetched("/runs.json")));
    setTimeout(poll, every);
  }
  poll();
});
