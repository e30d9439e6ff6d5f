"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("js");

  // The theme: the last choice, else that of the system.
  const memory = {
    get() { try { return localStorage.getItem("fedbench-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("fedbench-theme", value); } catch { /* a private window */ } },
  };
  const chosen = memory.get();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  function themes() {
    const button = document.querySelector(".theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const label = () => button.setAttribute("aria-pressed", String(dark()));
    button.hidden = false;
    label();
    system.addEventListener("change", label);
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      memory.set(root.dataset.theme);
      label();
    });
  }

  // Sorting within each setup, ascending, descending, then in the original order; a row keeps the line below it.
  const collator = new Intl.Collator("en", { numeric: true });
  const followed = (row) => (row.nextElementSibling?.classList.contains("more") ? [row, row.nextElementSibling] : [row]);

  function value(row, column, kind) {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent.trim();
    if (kind === "text") return text;
    const found = text.replace(/[−–]/g, "-").match(/[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?/i);
    return found ? Number(found[0]) : null;
  }

  function sortBy(table, column, kind, direction) {
    const sign = direction === "descending" ? -1 : 1;
    for (const body of table.tBodies) {
      const rows = all("tr.row", body).map((row) => ({ row, key: direction ? value(row, column, kind) : Number(row.dataset.at) }));
      rows.sort((a, b) => {
        if (a.key === null || b.key === null) return (a.key === null) - (b.key === null); // missing values come last
        return sign * (typeof a.key === "string" ? collator.compare(a.key, b.key) : a.key - b.key);
      });
      body.append(...rows.flatMap(({ row }) => followed(row)));
    }
  }

  // Sorts the rows by the marked heading, if there is one.
  function resort(table) {
    const head = table.querySelector("[aria-sort]");
    const { column, kind } = (head ?? table).querySelector(".sort").dataset;
    sortBy(table, Number(column), kind, head?.getAttribute("aria-sort") ?? "");
  }

  function sorting() {
    for (const table of all("table.data")) {
      all("tr.row", table).forEach((row, at) => { row.dataset.at = at; });
      for (const button of all(".sort", table)) {
        button.addEventListener("click", () => {
          const head = button.parentElement;
          const next = { ascending: "descending", descending: "" }[head.getAttribute("aria-sort")] ?? "ascending";
          all("[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
          if (next) head.setAttribute("aria-sort", next);
          resort(table);
        });
      }
    }
  }

  // Filtering of the rows of all tables at once.
  function filtering() {
    const buttons = all("[data-filter]");
    const status = document.querySelector(".shown");
    const choose = (filter) => {
      buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.filter === filter)));
      const rows = all("table.data:not(.free) tr.row");
      for (const row of rows) {
        const out = filter !== "all" && !(filter in row.dataset);
        followed(row).forEach((part) => { part.hidden = out; });
      }
      for (const table of all("table.data:not(.free)")) {
        for (const body of table.tBodies) body.hidden = !body.querySelector("tr.row:not([hidden])");
        const empty = !table.querySelector("tr.row:not([hidden])");
        table.parentElement.hidden = empty;
        table.parentElement.nextElementSibling.hidden = !empty;
      }
      const shown = rows.filter((row) => !row.hidden).length;
      status.textContent = filter === "all" ? "" : `${shown} of ${rows.length} rows shown`;
    };
    buttons.forEach((b) => b.addEventListener("click", () => choose(b.dataset.filter)));
  }

  // Copying a command; if the browser refuses, it is selected instead.
  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    let word = "Copied";
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      if (!document.execCommand("copy")) word = "Selected";
    }
    button.textContent = word;
    button.classList.add("done");
    setTimeout(() => {
      button.textContent = "Copy";
      button.classList.remove("done");
    }, 2000);
  }

  // The contents: folded on a narrow page, with the current section marked.
  function contents() {
    const toc = document.querySelector(".toc");
    const side = document.querySelector(".side");
    const wide = matchMedia("(min-width: 68rem)");
    const fold = () => { toc.open = wide.matches; };
    fold();
    wide.addEventListener("change", fold);
    const entries = all("a", toc)
      .map((link) => ({ link, part: document.getElementById(link.hash.slice(1)) }))
      .filter(({ part }) => part);
    let now = null;
    const mark = () => {
      const edge = innerHeight * 0.3;
      const passed = entries.filter(({ part }) => part.getBoundingClientRect().top <= edge);
      const atEnd = scrollY > 0 && scrollY + innerHeight >= root.scrollHeight - 2;
      const link = (atEnd ? entries.at(-1) : passed.at(-1) ?? entries[0])?.link;
      if (!link || link === now) return;
      now?.removeAttribute("aria-current");
      now = link;
      now.setAttribute("aria-current", "location");
      all(".part", toc).forEach((part) => part.classList.toggle("here", part.contains(now)));
      const view = side.getBoundingClientRect();
      const box = now.getBoundingClientRect();
      if (wide.matches && (box.top < view.top + 80 || box.bottom > view.bottom - 40)) side.scrollTop += box.top - view.top - view.height / 3;
    };
    let waiting = false;
    addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; mark(); });
    }, { passive: true });
    addEventListener("resize", mark);
    mark();
    toc.addEventListener("click", (event) => { if (event.target.closest("a")) setTimeout(fold); });
  }

  // A picture in full size: a copy of it in a dialog, which Escape closes.
  function enlarging() {
    const dialog = document.querySelector("dialog.large");
    const sheet = dialog.querySelector(".sheet");
    const title = dialog.querySelector("#large-title");
    for (const button of all(".enlarge")) {
      const picture = button.parentElement.querySelector("img");
      button.hidden = false;
      const open = () => {
        title.textContent = button.closest("figure").querySelector("figcaption b").textContent;
        sheet.replaceChildren(picture.cloneNode());
        dialog.showModal();
      };
      button.addEventListener("click", open);
      picture.addEventListener("click", open);
    }
    dialog.addEventListener("close", () => sheet.replaceChildren());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }

  // Charts take the place of pictures when they come into view.
  const options = {
    mode: "vega-lite", ast: true, logLevel: 1, actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true },
    config: { background: null, axis: { labelFontSize: 12, titleFontSize: 12 }, title: { fontSize: 13 }, view: { stroke: "#b9b5aa" } },
  };
  const named = (spec) => "params" in spec;
  const withLines = (spec) => spec.layer[0].mark.type === "area";
  const isLog = (spec) => spec.layer[0].encoding.y?.scale.type === "log";

  function scaled(spec, log) {
    if (!withLines(spec) || isLog(spec) === log) return spec;
    const copy = structuredClone(spec);
    copy.layer.forEach(({ encoding }) => { encoding.y.scale = log ? { type: "log" } : { zero: false }; });
    copy.transform = [...spec.transform.filter(({ filter }) => filter !== "datum.low > 0"), ...(log ? [{ filter: "datum.low > 0" }] : [])];
    return copy;
  }

  function toggle(text, pressed, change) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(text);
    button.setAttribute("aria-pressed", String(pressed));
    button.addEventListener("click", () => {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(now));
      change(now);
    });
    return button;
  }

  // Fills a place with charts; the result shows other charts there, of which those with the same lines only get their data.
  function charts(live) {
    const tools = live.querySelector(".lines");
    const hidden = new Set();
    let [specs, places, views] = [[], [], []];
    let log = null;
    const filter = () => views.forEach(({ spec, view }) => { if (named(spec)) view.signal("hidden", [...hidden]).runAsync(); });
    const embedded = (spec, at) => vegaEmbed(places[at], { ...scaled(spec, log), data: { ...spec.data, name: "lines" } }, options);
    const draw = async () => {
      views.forEach((shown) => shown.finalize());
      views = await Promise.all(specs.map(embedded));
      filter();
    };
    const buttons = function* () {
      const colours = new Map(specs.filter(named).flatMap(({ encoding: { color: { scale } } }) => scale.domain.map((name, at) => [name, scale.range[at]])));
      const names = [...colours.keys()];
      const whole = () => !names.some((name) => hidden.has(name));
      const lines = [];
      const every = toggle("all", whole(), (on) => {
        lines.forEach((line) => { line.setAttribute("aria-pressed", String(on)); });
        hidden.clear();
        if (!on) names.forEach((name) => { hidden.add(name); });
        filter();
      });
      every.className = "every";
      for (const [name, colour] of colours) {
        const button = toggle(name, !hidden.has(name), (on) => {
          if (on) hidden.delete(name);
          else hidden.add(name);
          every.setAttribute("aria-pressed", String(whole()));
          filter();
        });
        button.style.setProperty("--line", colour);
        lines.push(button);
      }
      if (lines.length > 6) yield every;
      yield* lines;
      if (!specs.some(withLines)) return;
      const button = toggle("logarithmic axis", log, (on) => { log = on; draw(); });
      button.className = "log";
      yield button;
    };
    const outline = (some) => JSON.stringify(some.map(({ title, encoding }) => [title, encoding]));
    live.hidden = false;
    live.parentElement.classList.add("charted");
    const show = async (next) => {
      const alike = views.length && outline(next) === outline(specs);
      specs = next;
      if (alike) return views.forEach(({ view }, at) => view.data("lines", structuredClone(specs[at].data.values)).runAsync());
      if (log === null) specs.filter(named).forEach(({ params }) => { params[0].value.forEach((name) => { hidden.add(name); }); });
      log ??= specs.some(isLog);
      places = specs.map(() => document.createElement("div"));
      live.querySelector(".charts").replaceChildren(...places);
      tools.replaceChildren(...buttons());
      await draw();
    };
    let last = Promise.resolve();
    return (next) => { // one after another
      last = last.catch(() => undefined).then(() => show(next));
      return last;
    };
  }

  function charting() {
    if (!window.vegaEmbed) return;
    const watch = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        watch.unobserve(target);
        const live = target.querySelector(".live");
        const specs = JSON.parse(live.querySelector("script").textContent);
        charts(live)(specs);
      }
    }, { rootMargin: "25%" });
    all(".plate:has(.live script)").forEach((plate) => watch.observe(plate));
  }

  // Printing opens all details.
  function printing() {
    let opened = [];
    const open = () => {
      if (opened.length) return;
      opened = all("details:not([open])");
      opened.forEach((d) => { d.open = true; });
    };
    const close = () => {
      opened.forEach((d) => { d.open = false; });
      opened = [];
    };
    addEventListener("beforeprint", open);
    addEventListener("afterprint", close);
    matchMedia("print").addEventListener("change", (event) => (event.matches ? open() : close()));
  }

  // A link into something folded opens it.
  function opening() {
    const open = () => {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!target) return;
      const own = target.querySelector(":scope > details, :scope > summary");
      for (let part = own ?? target; part; part = part.parentElement) if (part.matches("details")) part.open = true;
      target.scrollIntoView();
    };
    addEventListener("hashchange", open);
    document.addEventListener("click", (event) => {
      if (event.target.closest("a")?.hash === location.hash && location.hash) open();
    });
    open();
  }

  globalThis.fedbench = { all, charts, resort }; // for scripts of some pages

  document.addEventListener("DOMContentLoaded", () => {
    themes();
    sorting();
    filtering();
    contents();
    enlarging();
    charting();
    opening();
    printing();
    document.addEventListener("click", (event) => {
      const button = event.target.closest?.(".copy");
      if (button) copy(button);
    });
  });
})();
