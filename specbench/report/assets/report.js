"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const MOST = 6;

  const make = (tag, attributes = {}, ...inside) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...inside);
    return node;
  };
  const draw = (tag, attributes = {}, text = "") => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  };
  const number = (value, digits = 2) => (value === null ? "–" : value.toFixed(digits));

  const FILTERS = ["workload", "temperature", "batch", "category"];
  const first = (bounds) => (bounds === null ? null : bounds[0]);
  const COLUMNS = [
    ["point", (r) => r.point + (r.best && r.category === "all" ? " (best)" : ""), "left"],
    ["workload", (r) => r.workload, "left"],
    ["temp.", (r) => r.temperature],
    ["batch", (r) => r.batch],
    ["category", (r) => r.category, "left"],
    ["requests", (r) => r.requests],
    ["accept length", (r) => first(r.accept), "", (r) => interval(r.accept, 2)],
    ["tok/s", (r) => first(r.tok_s), "", (r) => interval(r.tok_s, 1)],
    ["speedup", (r) => first(r.speedup), "", (r) => interval(r.speedup, 2, "x")],
    ["break-even", (r) => r.break_even, "", (r) => [number(r.break_even)]],
    ["step ms", (r) => (r.split ? r.split.reduce((a, b) => a + b) : null), "",
      (r) => [number(r.split ? r.split.reduce((a, b) => a + b) : null)]],
    ["lossless", (r) => r.lossless || "–", "left"],
    ["validity", (r) => r.validity, "left"],
  ];

  function interval(bounds, digits, unit = "") {
    if (bounds === null) return ["–"];
    const [value, low, high] = bounds;
    if (low === null) return [number(value, digits) + unit];
    return [number(value, digits) + unit + " ", make("small", {}, `[${number(low, digits)}, ${number(high, digits)}]`)];
  }

  const chosen = {};
  const picked = [];
  let sorted = { column: null, down: true };

  function filters() {
    const form = byId("filters");
    for (const name of FILTERS) {
      const values = [...new Set(data.rows.map((row) => String(row[name])))];
      chosen[name] = name === "category" && values.includes("all") ? "all" : "";
      if (values.length < 2) continue;
      const select = make("select", { name });
      select.append(make("option", { value: "" }, "any"));
      for (const value of values) select.append(make("option", { value }, value));
      select.value = chosen[name];
      select.addEventListener("change", () => { chosen[name] = select.value; table(); });
      form.append(make("label", {}, `${name} `, select));
    }
    const words = make("input", { type: "search", name: "words", placeholder: "k, tree or caveat" });
    words.addEventListener("input", () => { chosen.words = words.value.toLowerCase(); table(); });
    form.append(make("label", {}, "contains ", words));
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  const shown = (row) =>
    FILTERS.every((name) => !chosen[name] || String(row[name]) === chosen[name]) &&
    (!chosen.words || COLUMNS.some(([, get]) => String(get(row)).toLowerCase().includes(chosen.words)));

  function headings() {
    const row = make("tr");
    COLUMNS.forEach(([name, , side], index) => {
      const button = make("button", { type: "button" }, name);
      button.addEventListener("click", () => {
        sorted = { column: index, down: sorted.column === index ? !sorted.down : true };
        table();
      });
      row.append(make("th", { scope: "col", class: side || "" }, button));
    });
    byId("grid").tHead.append(row);
  }

  function table() {
    const rows = data.rows.filter(shown);
    if (sorted.column !== null) {
      const get = COLUMNS[sorted.column][1];
      const order = sorted.down ? -1 : 1;
      rows.sort((a, b) => {
        const [x, y] = [get(a), get(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        return (x < y ? -1 : x > y ? 1 : 0) * order;
      });
    }
    [...byId("grid").tHead.rows[0].cells].forEach((cell, index) => {
      if (index === sorted.column) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    byId("grid").tBodies[0].replaceChildren(...rows.map(line));
    byId("count").textContent = `${rows.length} of ${data.rows.length} rows`;
  }

  function line(row) {
    const at = picked.indexOf(row);
    const node = make("tr", { tabindex: "0", "aria-selected": String(at >= 0) });
    if (INVALID.test(row.validity)) node.className = "bad";
    COLUMNS.forEach(([, get, side, show], index) => {
      const key = index === 0 ? ` key${at >= 0 ? ` k${at}` : ""}` : "";
      node.append(make("td", { class: (side || "") + key }, ...(show ? show(row) : [String(get(row))])));
    });
    const toggle = () => { pick(row); table(); pictures(); };
    node.addEventListener("click", toggle);
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
    });
    return node;
  }
  const INVALID = new RegExp(data.invalid && data.invalid.length ? `\\b(${data.invalid.join("|")})\\b` : "$^");

  function pick(row) {
    const at = picked.indexOf(row);
    if (at >= 0) picked.splice(at, 1);
    else {
      if (picked.length === MOST) picked.shift();
      picked.push(row);
    }
  }

  const name = (row) => `${row.point} b${row.batch}${row.category === "all" ? "" : ` ${row.category}`}`;

  function pictures() {
    survival();
    split();
  }

  function survival() {
    const rows = picked.filter((row) => row.survival.length);
    const depth = Math.max(1, ...rows.map((row) => row.survival.length));
    const [width, height, left, top, bottom] = [520, 280, 44, 12, 30];
    const x = (i) => left + ((width - left - 110) * i) / depth;
    const y = (share) => top + (height - top - bottom) * (1 - share);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Survival by position" });
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(draw("line", { x1: left, x2: x(depth), y1: y(share), y2: y(share), class: "grid" }));
      svg.append(draw("text", { x: left - 8, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`));
    }
    for (let i = 0; i <= depth; i += 1) svg.append(draw("text", { x: x(i), y: height - 10, "text-anchor": "middle" }, i));
    let last = [];
    rows.forEach((row) => {
      const kind = `s${picked.indexOf(row)}`;
      const points = [1, ...row.survival].map((share, i) => [x(i), y(share)]);
      svg.append(draw("polyline", { points: points.map((p) => p.join(",")).join(" "), class: kind }));
      for (const [px, py] of points) svg.append(draw("circle", { cx: px, cy: py, r: 3, class: kind }));
      const [px, py] = points[points.length - 1];
      let at = py + 4;
      while (last.some((other) => Math.abs(other - at) < 13)) at -= 13;
      last.push(at);
      svg.append(draw("text", { x: px + 8, y: at, class: "ink" }, name(row)));
    });
    show("survival", svg, rows, "Pick a row with drafts.");
  }

  function split() {
    const rows = picked.filter((row) => row.split);
    const most = Math.max(...rows.map((row) => row.split.reduce((a, b) => a + b)), 1e-9);
    const [width, left, step] = [520, 110, 62];
    const svg = draw("svg", { viewBox: `0 0 ${width} ${rows.length * step + 26}`, role: "img", "aria-label": "Step time by part" });
    rows.forEach((row, index) => {
      const top = index * step + 6;
      let at = left;
      const scale = (width - left - 8) / most;
      svg.append(draw("text", { x: left - 8, y: top + 17, "text-anchor": "end", class: "ink" }, name(row)));
      row.split.forEach((part, kind) => {
        svg.append(draw("rect", { x: at, y: top, width: Math.max(part * scale, 0), height: 24, class: `p${kind}` }));
        at += part * scale;
      });
      const total = row.split.reduce((a, b) => a + b);
      const why = row.break_even === null
        ? `${number(total)} ms a step`
        : `${number(row.emitted)} tokens a step ÷ (${number(total)} ÷ ${number(row.plain_ms)} ms = ${number(row.break_even)}) = ${number(row.emitted / row.break_even)}x`;
      svg.append(draw("text", { x: left, y: top + 40 }, why));
    });
    ["draft", "extend", "verify", "other"].forEach((part, kind) => {
      const at = left + kind * 95;
      svg.append(draw("rect", { x: at, y: rows.length * step + 8, width: 12, height: 12, class: `p${kind}` }));
      svg.append(draw("text", { x: at + 17, y: rows.length * step + 18 }, part));
    });
    show("split", svg, rows, "Pick a row whose steps were timed.");
  }

  function show(id, svg, rows, empty) {
    byId(id).replaceChildren(rows.length ? svg : make("p", { class: "note" }, empty));
  }

  const mark = (kind) => make("i", { class: `mark ${kind}` });

  function output(one) {
    const length = one.verify_steps ? number(1 + one.accepted / one.verify_steps) : "–";
    const boxes = one.steps.map((step) => {
      const kind = step.depth === null ? "first" : step.accepted ? "took" : "miss";
      const marks = make("span", { class: "marks", "aria-hidden": "true" });
      if (step.depth === null) marks.append(mark("p"));
      else {
        for (let i = 0; i < step.depth; i += 1) marks.append(mark(i < step.accepted ? "a" : "r"));
        marks.append(mark("b"));
      }
      const told = step.depth === null ? "token of the prefill" : `${step.accepted} of ${step.depth} drafts accepted, then the bonus token`;
      const gone = step.rejected ? [make("s", {}, step.rejected.replaceAll("\n", "↵"))] : [];
      const text = make("span", {}, make("b", {}, step.text || "\u00a0"), ...gone);
      return make("span", { class: `step ${kind}`, title: told }, text, marks);
    });
    byId("output").replaceChildren(
      make("h3", {}, `${one.request_id} · ${one.category || "no category"} · ${one.point} · ${one.tokens} tokens in ${one.verify_steps} verify steps · accept length ${length} · ended by ${one.finish}`),
      ...(one.prompt ? [make("p", { class: "prompt" }, one.prompt)] : []),
      make("div", { class: "steps" }, ...boxes),
      ...(one.cut ? [make("p", { class: "note" }, `${one.cut} more steps are not shown.`)] : []),
    );
  }

  function outputs() {
    if (!data.outputs.length) return;
    const select = byId("which");
    data.outputs.forEach((one, index) => select.append(make("option", { value: index }, `${one.category || "–"}: ${one.request_id}`)));
    select.addEventListener("change", () => output(data.outputs[Number(select.value)]));
    output(data.outputs[0]);
    byId("texts").hidden = false;
  }

  filters();
  headings();
  for (const row of data.rows) if (row.best && row.category === "all" && picked.length < MOST) pick(row);
  table();
  pictures();
  outputs();
  byId("explore").hidden = false;
})();
