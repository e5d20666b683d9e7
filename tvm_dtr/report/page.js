"use strict";
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const mib = (b) => (b == null ? "–" : (b / 2 ** 20).toFixed(1) + " MiB");
  const ms = (t) => (t == null ? "–" : t >= 1000 ? (t / 1000).toFixed(2) + " s" : t.toFixed(t < 10 ? 2 : 1) + " ms");
  const el = (parent, name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  };
  const add = (parent, name, text, className) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    parent.appendChild(node);
    return node;
  };
  const tip = $("tip");
  const say = (event, text) => {
    tip.hidden = false;
    tip.textContent = text;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = x + "px";
    tip.style.top = event.clientY + 14 + "px";
  };
  const hush = () => { tip.hidden = true; };
  const ticks = (low, high, count) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw || 1));
    const size = [1, 2, 5, 10].map((f) => f * power).find((f) => f >= raw) || power;
    const found = [];
    for (let t = Math.ceil(low / size) * size; t <= high + 1e-9; t += size) found.push(t);
    return found;
  };
  const short = (value) => String(+value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0));

  // A frame with axes; returns the svg, its inner size and scales.
  const frame = (box, w, h, x, y, xLabel, yLabel) => {
    box.replaceChildren();
    const svg = el(box, "svg", { viewBox: `0 0 ${w} ${h}` });
    const left = 52, right = 14, top = 16, bottom = 38;
    const X = (v) => left + ((v - x[0]) / (x[1] - x[0] || 1)) * (w - left - right);
    const Y = (v) => h - bottom - ((v - y[0]) / (y[1] - y[0] || 1)) * (h - top - bottom);
    for (const t of ticks(y[0], y[1], 5)) {
      el(svg, "line", { class: "grid", x1: left, x2: w - right, y1: Y(t), y2: Y(t) });
      el(svg, "text", { x: left - 8, y: Y(t) + 4, "text-anchor": "end" }, short(t));
    }
    for (const t of ticks(x[0], x[1], 7)) {
      el(svg, "text", { x: X(t), y: h - bottom + 18, "text-anchor": "middle" }, short(t));
    }
    el(svg, "text", { x: (left + w - right) / 2, y: h - 4, "text-anchor": "middle" }, xLabel);
    el(svg, "text", { x: left, y: 10 }, yLabel);
    return { svg, X, Y, left, right, top, bottom, w, h };
  };

  // -- Summary -------------------------------------------------------------------------------
  const T = D.totals, R = D.run;
  $("title").textContent = `${D.name}, step ${D.step}`;
  $("subtitle").textContent = [
    D.policy && `policy ${D.policy}`, D.started && `recorded ${D.started.replace("T", " ").replace("Z", " UTC")}`,
  ].filter(Boolean).join(" · ");
  const share = D.unbudgeted_peak_bytes && T.budget_bytes ? ` (${Math.round((100 * T.budget_bytes) / D.unbudgeted_peak_bytes)} %)` : "";
  const tiles = [
    ["step", ms(T.step_seconds == null ? D.length : T.step_seconds * 1e3)],
    ["slowdown", R.slowdown == null ? "–" : R.slowdown.toFixed(3)],
    ["peak", mib(T.peak_bytes)],
    ["budget" + share, T.budget_bytes == null ? "none" : mib(T.budget_bytes)],
    ["peak without budget", mib(D.unbudgeted_peak_bytes)],
    ["compute", ms(T.compute_seconds * 1e3)],
    ["recompute", ms(T.remat_seconds * 1e3), T.remat_seconds > 0],
    ["search", ms(T.search_seconds * 1e3)],
    ["evictions", String(T.evictions)],
    ["ops run again", String(T.rematerializations)],
    ["updated in place", String(D.overwrites)],
  ];
  for (const [label, value, hot] of tiles) {
    const tile = add($("tiles"), "div", undefined, hot ? "tile hot" : "tile");
    add(tile, "b", value);
    add(tile, "span", label);
  }
  const broken = D.steps.find((s) => s.failed);
  if (broken || D.damage || !D.complete) {
    $("warning").hidden = false;
    $("warning").textContent = [
      broken && `Step ${broken.step} did not end: ${broken.failed}.`,
      D.damage ? `The trace is ${D.damage}; what came before is shown.`
        : !D.complete && "The recording was cut off; what came before is shown.",
    ].filter(Boolean).join(" ");
  }

  // -- Memory --------------------------------------------------------------------------------
  const box = $("memory");
  let view = [0, D.length], cursor = null, brush = null;
  const highest = () => {
    let most = 0;
    for (let i = 0; i < D.ms.length; i++) {
      let sum = 0;
      for (const row of D.sizes) sum += row[i];
      most = Math.max(most, sum);
    }
    return Math.max(most, ...D.budgets.map((b) => b[1] || 0)) / 2 ** 20;
  };
  const top = highest() * 1.1 || 1;
  let chart;
  const drawMemory = () => {
    const f = (chart = frame(box, 1120, 380, view, [0, top], "time in the step (ms)", "MiB"));
    const clip = el(f.svg, "clipPath", { id: "inside" });
    el(clip, "rect", { x: f.left, y: f.top, width: f.w - f.left - f.right, height: f.h - f.top - f.bottom });
    const g = el(f.svg, "g", { "clip-path": "url(#inside)" });
    const below = new Array(D.ms.length).fill(0);
    D.roles.forEach((role, r) => {
      const up = [], down = [];
      for (let i = 0; i < D.ms.length; i++) {
        const x = f.X(D.ms[i]), next = f.X(i + 1 < D.ms.length ? D.ms[i + 1] : D.length);
        const a = f.Y(below[i] / 2 ** 20), b = f.Y((below[i] += D.sizes[r][i]) / 2 ** 20);
        up.push(`${x.toFixed(1)},${b.toFixed(1)} ${next.toFixed(1)},${b.toFixed(1)}`);
        down.push(`${next.toFixed(1)},${a.toFixed(1)} ${x.toFixed(1)},${a.toFixed(1)}`);
      }
      el(g, "polygon", { points: up.join(" ") + " " + down.reverse().join(" "), style: `fill:var(--r${r})` });
    });
    for (const [at, long] of D.again) {
      el(g, "rect", { class: "again", x: f.X(at), width: Math.max(0.6, f.X(at + long) - f.X(at)), y: f.top, height: 7 });
    }
    const line = D.budgets.filter((b) => b[1] != null);
    if (line.length) {
      const points = line.flatMap(([at, b], i) => {
        const end = i + 1 < line.length ? line[i + 1][0] : D.length, y = f.Y(b / 2 ** 20);
        return [`${f.X(at)},${y}`, `${f.X(end)},${y}`];
      });
      el(g, "polyline", { class: "budget", points: points.join(" ") });
    }
    if (brush) {
      const [a, b] = [Math.min(...brush), Math.max(...brush)];
      el(g, "rect", { class: "brush", x: f.X(a), width: f.X(b) - f.X(a), y: f.top, height: f.h - f.top - f.bottom });
    }
    if (cursor != null) el(g, "line", { class: "cursor", x1: f.X(cursor), x2: f.X(cursor), y1: f.top, y2: f.h - f.bottom });
    readout();
  };
  const indexAt = (t) => {
    let low = 0, high = D.ms.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (D.ms[middle] <= t) low = middle; else high = middle - 1;
    }
    return low;
  };
  const readout = () => {
    if (cursor == null) { $("readout").textContent = ""; return; }
    const i = indexAt(cursor);
    const parts = D.roles.map((role, r) => D.sizes[r][i] && `${role} ${mib(D.sizes[r][i])}`).filter(Boolean);
    $("readout").textContent = `${cursor.toFixed(2)} ms: ${parts.join(" · ")}`;
  };
  const timeAt = (event) => {
    const r = chart.svg.getBoundingClientRect();
    const x = ((event.clientX - r.left) / r.width) * chart.w;
    const t = view[0] + ((x - chart.left) / (chart.w - chart.left - chart.right)) * (view[1] - view[0]);
    return Math.max(view[0], Math.min(view[1], t));
  };
  const zoom = (factor, around) => {
    const wide = Math.min(D.length, Math.max(D.length / 2000, (view[1] - view[0]) * factor));
    const part = (around - view[0]) / (view[1] - view[0] || 1);
    const start = Math.max(0, Math.min(D.length - wide, around - part * wide));
    view = [start, start + wide];
    drawMemory();
  };
  box.addEventListener("pointerdown", (e) => { brush = [timeAt(e), timeAt(e)]; box.setPointerCapture(e.pointerId); });
  box.addEventListener("pointermove", (e) => {
    cursor = timeAt(e);
    if (brush) brush[1] = cursor;
    drawMemory();
  });
  box.addEventListener("pointerup", () => {
    if (brush && Math.abs(brush[1] - brush[0]) > (view[1] - view[0]) / 100) view = [Math.min(...brush), Math.max(...brush)];
    brush = null;
    drawMemory();
  });
  box.addEventListener("pointerleave", () => { if (!brush) { cursor = null; drawMemory(); } });
  box.addEventListener("dblclick", () => { view = [0, D.length]; drawMemory(); });
  box.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, timeAt(e)); }, { passive: false });
  box.addEventListener("keydown", (e) => {
    const middle = cursor == null ? (view[0] + view[1]) / 2 : cursor, stride = (view[1] - view[0]) / 100;
    if (e.key === "+" || e.key === "=") zoom(0.7, middle);
    else if (e.key === "-") zoom(1.4, middle);
    else if (e.key === "0") { view = [0, D.length]; drawMemory(); }
    else if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
      cursor = Math.max(0, Math.min(D.length, middle + (e.key === "ArrowLeft" ? -stride : stride)));
      const wide = view[1] - view[0];
      if (cursor < view[0]) view = [cursor, cursor + wide];
      if (cursor > view[1]) view = [cursor - wide, cursor];
      drawMemory();
    } else return;
    e.preventDefault();
  });
  D.roles.forEach((role, r) => {
    if (!D.sizes[r].some(Boolean)) return;
    const item = add($("legend"), "span");
    add(item, "i").style.background = `var(--r${r})`;
    item.append(role);
  });
  if (D.again.length) {
    const item = add($("legend"), "span");
    add(item, "i").style.background = "var(--accent)";
    item.append("recomputation (strip on top)");
  }
  drawMemory();

  // -- Slowdown against budget ---------------------------------------------------------------
  const C = D.curve;
  if (C) {
    const good = C.points.filter((p) => p[1] != null);
    const most = Math.max(1.1, ...good.map((p) => p[1]));
    const low = C.smallest_bytes / 2 ** 20, high = C.peak_bytes / 2 ** 20;
    const f = frame($("curve"), 540, 300, [low - (high - low) * 0.06, high * 1.02], [1, 1 + (most - 1) * 1.12], "budget (MiB)", "slowdown");
    const path = good.map((p) => `${f.X(p[0] / 2 ** 20)},${f.Y(p[1])}`).join(" ");
    el(f.svg, "polyline", { points: path, fill: "none", style: "stroke:var(--r0);stroke-width:2" });
    for (const [bytes, slowdown, policy] of good) {
      const dot = el(f.svg, "circle", { cx: f.X(bytes / 2 ** 20), cy: f.Y(slowdown), r: 4, style: "fill:var(--r0)" });
      dot.addEventListener("pointermove", (e) => say(e, `${mib(bytes)}: slowdown ${slowdown.toFixed(3)} (${policy})`));
      dot.addEventListener("pointerleave", hush);
    }
    if (T.budget_bytes && T.budget_bytes <= C.peak_bytes * 1.02) {
      const x = f.X(T.budget_bytes / 2 ** 20);
      el(f.svg, "line", { class: "budget", x1: x, x2: x, y1: f.top, y2: f.h - f.bottom });
      const right = x > f.w * 0.7;
      el(f.svg, "text", { x: x + (right ? -6 : 6), y: f.top + 12, "text-anchor": right ? "end" : "start" }, "this run");
    }
    if (C.knee_bytes) {
      const p = good.find((q) => q[0] === C.knee_bytes);
      el(f.svg, "circle", { cx: f.X(p[0] / 2 ** 20), cy: f.Y(p[1]), r: 8, fill: "none", style: "stroke:var(--accent);stroke-width:2" });
      el(f.svg, "text", { x: f.X(p[0] / 2 ** 20) + 11, y: f.Y(p[1]) - 8 }, "knee");
    }
  } else add($("curve"), "p", D.no_curve);
  for (const line of D.advice) add($("advice"), "li", line);

  // -- Evictions -----------------------------------------------------------------------------
  if (D.evictions.length) {
    const most = Math.max(...D.evictions.map((e) => e.bytes)) / 2 ** 20;
    const f = frame($("evictions"), 540, 300, [0, D.length], [0, most * 1.15], "time in the step (ms)", "MiB");
    for (const e of D.evictions) {
      const r = D.roles.indexOf(e.role);
      const dot = el(f.svg, "circle", { cx: f.X(e.ms), cy: f.Y(e.bytes / 2 ** 20), r: 4.5, style: `fill:var(--r${r});stroke:var(--paper)` });
      const score = e.score == null ? "" : `, score ${e.score.toExponential(2)}`;
      dot.addEventListener("pointermove", (v) => say(v, `${e.name}: ${mib(e.bytes)} at ${e.ms.toFixed(2)} ms${score}`));
      dot.addEventListener("pointerleave", hush);
    }
  } else add($("evictions"), "p", "Nothing was evicted in this step.");

  // -- Tables --------------------------------------------------------------------------------
  const table = (id, columns, rows, nothing) => {
    if (!rows.length) { add($(id), "p", nothing); return; }
    const t = add($(id), "table"), head = add(add(t, "thead"), "tr"), body = add(t, "tbody");
    for (const [label, , number] of columns) add(head, "th", label, number ? "n" : "").scope = "col";
    for (const row of rows) {
      const tr = add(body, "tr");
      for (const [, value, number] of columns) {
        const cell = add(tr, "td", undefined, number ? "n" : ""), shown = value(row);
        if (shown instanceof Node) cell.append(shown); else cell.textContent = shown;
      }
    }
  };
  const held = Object.entries(D.roles_at_peak).filter((r) => r[1]);
  table("peak", [
    ["role", (r) => r[0]], ["held", (r) => mib(r[1]), 1], ["bytes", (r) => r[1].toLocaleString("en"), 1],
    ["share", (r) => ((100 * r[1]) / T.peak_bytes).toFixed(1) + " %", 1],
  ], held, "Nothing was held in this step.");
  table("recomputed", [
    ["ONNX node", (r) => r.name], ["layer", (r) => r.layer], ["times", (r) => r.times, 1],
    ["time", (r) => ms(r.ms), 1], ["size", (r) => mib(r.bytes), 1],
  ], D.recomputed, "No op was run a second time.");
  table("held", [
    ["ONNX node", (r) => r.name], ["role", (r) => r.role], ["shape", (r) => r.shape],
    ["size", (r) => mib(r.bytes), 1], ["in memory", (r) => ms(r.ms), 1], ["evictions", (r) => r.evictions, 1],
  ], D.held, "No op made a storage in this step.");
  const longest = Math.max(...D.layers.map((r) => r.compute + r.again), 1e-9);
  table("layers", [
    ["layer", (r) => r.layer], ["calls", (r) => r.calls, 1], ["compute", (r) => ms(r.compute), 1],
    ["recompute", (r) => (r.again ? ms(r.again) : "–"), 1],
    ["", (r) => {
      const bar = document.createElement("div");
      bar.className = "bar";
      add(bar, "i").style.width = (100 * r.compute) / longest + "%";
      add(bar, "i").style.width = (100 * r.again) / longest + "%";
      return bar;
    }],
  ], D.layers, "No kernel ran in this step.");
  table("steps", [
    ["step", (s) => s.step, 1], ["time", (s) => (s.step_seconds == null ? "–" : ms(s.step_seconds * 1e3)), 1],
    ["compute", (s) => ms(s.compute_seconds * 1e3), 1], ["recompute", (s) => ms(s.remat_seconds * 1e3), 1],
    ["search", (s) => ms(s.search_seconds * 1e3), 1], ["peak", (s) => mib(s.peak_bytes), 1],
    ["evictions", (s) => s.evictions, 1], ["run again", (s) => s.rematerializations, 1],
    ["", (s) => s.failed || ""],
  ], D.steps, "The trace has no step.");
  document.documentElement.dataset.ready = "1";
})();
