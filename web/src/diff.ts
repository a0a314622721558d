// The page of a comparison: the gate's verdict, each run's peak, curves and steps over each other, what differs by role and op.

import { chart } from "./chart";
import type { Diff, DiffRow as Row } from "./documents";
import { bytes, colour, el, legendItem, percent, section, size, swatch, whole } from "./dom";
import { table } from "./table";
import { capital, partName, plural, sentence } from "./words";

interface Curve { pool: string; device: string; steps: number[]; bytes: (number | null)[] }
export interface RawDiff { diff: Diff; curves: Curve[][]; columns: number; aggregated: string[] }

// The first run is what the others are measured by: it is quiet.
const COLOURS = ["unknown", "parameters", "gradients", "activations", "optimizer", "temporaries", "inputs", "state"];
const colourOf = (run: number) => COLOURS[run === 0 ? 0 : 1 + ((run - 1) % (COLOURS.length - 1))]!;
const letter = (run: number) => (run < 26 ? String.fromCharCode(65 + run) : `run ${run + 1}`);

function signed(delta: number | null): HTMLElement {
  if (delta === null) return el("span", { class: "none" }, "–");
  return el("data", { value: String(delta), title: (delta > 0 ? "+" : "") + whole(delta) + " bytes", class: delta > 0 ? "rise" : delta < 0 ? "fall" : "none" },
    delta === 0 ? "same" : (delta > 0 ? "+" : "") + bytes(delta));
}

// What a row is of; words of ours stand in brackets in the JSON.
const nameOf = (row: Row) => partName(row.what.startsWith("(") ? row.what.slice(1, -1) : row.what);

function legend(diff: Diff): HTMLElement {
  return el("ul", { class: "legend" }, ...diff.runs.map((run, at) => legendItem(colourOf(at), `${letter(at)}: ${run}`)));
}

// Steps by name: with epoch and phase where one begins, else by number alone.
function stepNames(rows: Row[]): { text: string; isStart: boolean }[] {
  return rows.map((row, at) => {
    const before = rows[at - 1];
    const isOther = !before || before.epoch !== row.epoch, isStart = isOther || before.phase !== row.phase;
    const epoch = isOther && row.epoch !== undefined ? `epoch ${row.epoch}, ` : "";
    return { text: (isStart ? `${epoch}${row.phase ?? ""} ` : "") + (row.step ?? ""), isStart };
  });
}

// Lines of several runs over each other, `perName` values for each name. A name that starts something takes precedence and has a mark. Where `figures` change the line ends: a peak is not joined with what is in use at a step's end, which is dashed.
function lines(label: string, series: (number | null)[][], names: { text: string; isStart: boolean }[], perName: number, height: number, figures?: string[]): HTMLElement {
  const length = Math.max(1, ...series.map((one) => one.length));
  const most = Math.max(1, ...series.map((one) => one.reduce<number>((a, b) => Math.max(a, b ?? 0), 0)));
  return chart(label, height, most, ({ g, x0, x1, y0, y1, names: below, y: Y }) => {
    const X = (at: number) => x0 + (at / length) * (x1 - x0);
    const taken: [number, number][] = [];
    for (const isStart of [true, false]) names.forEach((name, at) => {
      if (name.isStart !== isStart) return;
      const x = X(at * perName);
      if (isStart && at > 0) { g.fillStyle = colour("mark"); g.fillRect(x, y0, 1, y1 - y0); }
      const wide = g.measureText(name.text).width;
      const middle = Math.min(Math.max((x + X((at + 1) * perName)) / 2, x0 + wide / 2), x1 - wide / 2);
      const [from, to] = [middle - wide / 2 - 5, middle + wide / 2 + 5];
      if (taken.some(([a, b]) => from < b && a < to)) return;
      g.fillStyle = colour("soft");
      g.fillText(name.text, middle, below);
      taken.push([from, to]);
    });
    const isDashed = (at: number) => figures?.[at] === "in-use" && figures.includes("peak");
    // The first run last, as a line over the others' areas would hide it.
    for (let run = series.length - 1; run >= 0; run--) for (const dashed of [true, false]) {
      const one = series[run]!;
      g.strokeStyle = colour(colourOf(run));
      g.lineWidth = run === 0 ? 2 : 1.6;
      g.setLineDash(dashed ? [5, 3] : []);
      g.beginPath();
      let isOn = false;
      one.forEach((value, at) => {
        if (value === null || isDashed(at) !== dashed) { isOn = false; return; }
        if (isOn) g.lineTo(X(at), Y(value)); else g.moveTo(X(at), Y(value));
        g.lineTo(X(at + 1), Y(value));
        isOn = true;
      });
      g.stroke();
      g.setLineDash([]);
      g.lineWidth = 1;
    }
  });
}

// Rows with a bar for each run, side by side.
function bars(diff: Diff, rows: Row[]): HTMLElement {
  const most = Math.max(1, ...rows.flatMap((row) => row.bytes.map((value) => value ?? 0)));
  const list = el("div", { class: "sides" });
  for (const row of rows) {
    const name = nameOf(row);
    const words = row.bytes.map((value, run) => `${letter(run)} ${value === null ? "unknown" : bytes(value)}`).join(", ");
    const group = el("div", { class: "pair", role: "img", "aria-label": `${name}: ${words}` });
    row.bytes.forEach((value, run) => {
      const bar = el("i", { class: colourOf(run) });
      bar.style.width = (100 * (value ?? 0)) / most + "%";
      group.append(el("div", { class: "side", title: `${diff.runs[run]}: ${value === null ? "unknown" : whole(value) + " bytes"}` }, bar, size(value)));
    });
    list.append(el("div", { class: "what", title: row.what }, name), group, el("div", { class: "number" }, ...row.deltas_bytes.slice(1).map((delta) => el("div", {}, signed(delta),
      row.within_spread && row.spread_bytes ? el("span", { class: "hint" }, " within the spread") : null))));
  }
  return list;
}

export function comparison(raw: RawDiff, page: HTMLElement) {
  const { diff } = raw;
  const pools = [...new Set(diff.rows.filter((row) => row.by === "device").map((row) => row.pool))];
  const show = (pool: string | undefined) => {
    const rows = diff.rows.filter((row) => row.pool === pool);
    const parts: (HTMLElement | null)[] = [];
    if (pools.length > 1) {
      const select = el("select", { id: "pool" }, ...pools.map((one) => el("option", { value: one, selected: one === pool }, one)));
      select.addEventListener("change", () => { show(select.value); document.getElementById("pool")?.focus(); });
      parts.push(el("p", { class: "chooser" }, el("label", { for: "pool" }, "Pool "), select));
    }
    const peaks = rows.filter((row) => row.by === "device");
    const main = peaks[0];
    if (main) {
      parts.push(el("section", { class: "cards", id: "peaks", "aria-label": "The peak of each run" }, ...diff.runs.map((run, at) => {
        const base = main.bytes[0] ?? null, value = main.bytes[at] ?? null, delta = main.deltas_bytes[at] ?? null;
        const share = at > 0 && delta !== null && base ? ` (${delta < 0 ? "-" : "+"}${percent(Math.abs(delta), base)})` : "";
        const repeats = diff.sides[at]?.repeats ?? 1, low = main.low_bytes[at] ?? null, high = main.high_bytes[at] ?? null;
        return el("div", { class: "card" }, el("h2", {}, swatch(colourOf(at)), `${letter(at)}: ${run}`),
          el("p", { class: "figure" }, size(value, "unknown")),
          el("p", { class: "hint" }, at === 0 ? `${main.figure === "ever" ? "peak of the process" : "peak"}; the other runs are compared with it` : el("span", {}, signed(delta), share, main.within_spread ? ", within the spread of the repeats" : "")),
          repeats > 1 && low !== null && high !== null ? el("p", { class: "hint" }, `median of ${repeats} runs, ${bytes(low)} to ${bytes(high)}`) : null);
      })));
    }
    const curves = raw.curves.map((of) => of.find((curve) => curve.pool === pool) ?? of.find((curve) => curve.device === main?.device) ?? null);
    if (curves.filter(Boolean).length > 1) {
      const out = section("curves", "Within the steps", "All steps have the same width, however long they took; the first step of each run is drawn over the first of the others, and so on. Each point is the highest value of its part of the step.");
      const count = Math.max(...curves.map((curve) => curve?.steps.length ?? 0));
      out.append(legend(diff), lines(`Memory of ${pool} within ${plural(count, "traced step")} of ${plural(diff.runs.length, "run")}; the tables below have the figures.`,
        curves.map((curve) => curve?.bytes ?? []), Array.from({ length: count }, (_, at) => ({ text: `step ${at + 1}`, isStart: true })), raw.columns, 260));
      parts.push(out);
    }
    const steps = rows.filter((row) => row.by === "step");
    if (steps.length > 1) {
      const peaks = steps.filter((row) => row.figure === "peak").length, ends = steps.length - peaks;
      const shown = ends === 0 ? "The peak of each step" : peaks === 0 ? "In use at the end of each step" : "Solid: the peak of a step; dashed: in use at its end, where a run does not report the peak";
      const out = section("steps", "Step by step", shown + ". Steps are matched by their number, in the order in which they ran.");
      const figures = [peaks > 0 ? `peaks of ${plural(peaks, "step")}` : "", ends > 0 ? `memory in use at the end of ${plural(ends, "step")}` : ""].filter(Boolean).join(" and ");
      out.append(legend(diff), lines(`${capital(figures)} of ${plural(diff.runs.length, "run")}; the table has each.`,
        diff.runs.map((_, run) => steps.map((row) => row.bytes[run] ?? null)), stepNames(steps), 1, 200, steps.map((row) => row.figure)));
      parts.push(out);
    }
    const isHeld = (row: Row) => row.bytes.some((value) => (value ?? 0) > 0);
    const roles = rows.filter((row) => row.by === "role" && isHeld(row));
    if (roles.length > 0) {
      const out = section("roles", "At the peak, by role");
      out.append(legend(diff), bars(diff, roles));
      parts.push(out);
    }
    for (const [by, title] of [["op", "At the peak, by op"], ["layer", "At the peak, by layer"]] as const) {
      const list = rows.filter((row) => row.by === by && isHeld(row));
      if (list.length === 0) continue;
      const out = section(by + "s", title, "Largest changes first.");
      out.append(legend(diff), bars(diff, list.slice(0, 12)));
      if (list.length > 12) out.append(el("p", { class: "hint" }, `The table below lists ${whole(list.length - 12)} more.`));
      parts.push(out);
    }
    const out = section("rows", "All figures");
    out.append(table<Row>([
      { title: "by", value: (row) => row.by },
      ...diff.runs.map((_, run) => ({ title: letter(run), number: true, value: (row: Row) => row.bytes[run] ?? null, show: (row: Row) => size(row.bytes[run]) })),
      ...diff.runs.slice(1).map((_, at) => ({ title: diff.runs.length > 2 ? `${letter(at + 1)} − A` : "difference", number: true,
        value: (row: Row) => row.deltas_bytes[at + 1] ?? null, show: (row: Row) => signed(row.deltas_bytes[at + 1] ?? null) })),
      ...(rows.some((row) => row.spread_bytes !== null) ? [{ title: "spread", number: true, value: (row: Row) => row.spread_bytes, show: (row: Row) => size(row.spread_bytes) }] : []),
      { title: "what", wide: true, value: nameOf },
    ], rows, { filter: "Filter by op, layer, role or step", caption: "All figures of the comparison", first: 25 }));
    parts.push(out);
    const notes = section("notes", "Notes"), list = el("ul", {});
    for (const warning of diff.warnings) list.append(el("li", {}, sentence(warning.text), warning.hint ? el("span", { class: "hint" }, " " + sentence(warning.hint)) : null));
    for (const text of raw.aggregated) list.append(el("li", {}, "To keep this file small, " + text + "."));
    if (list.children.length > 0) notes.append(list);
    diff.sides.forEach((side, at) => notes.append(el("p", { class: "hint" }, `${letter(at)}: ${side.files.join(", ")} (${[side.framework, side.format].filter(Boolean).join(", ")})`)));
    notes.append(el("p", { class: "hint" }, "1 KiB is 1,024 bytes; point at a size to see its exact bytes."));
    parts.push(notes);
    page.replaceChildren(...parts.filter((part): part is HTMLElement => part !== null));
  };
  show(pools[0]);
}
