// The page of a comparison: the gate's verdict, each run's peak, curves and steps over each other, what differs by role and op.

import { chart } from "./chart";
import { bytes, colour, el, percent, section, size, whole } from "./dom";
import { table } from "./table";
import { capital } from "./timeline";

interface Row {
  what: string; by: string; figure: string; pool: string; device: string; layer: string; role: string; step?: number; phase?: string;
  bytes: (number | null)[]; low_bytes: (number | null)[]; high_bytes: (number | null)[]; delta_bytes: number | null; deltas_bytes: (number | null)[];
  spread_bytes: number | null; within_spread: boolean;
}
interface Diff {
  runs: string[]; verdict: string; gate: string; fail_over?: string; rows: Row[];
  sides: { name: string; files: string[]; format: string; framework: string | null; repeats: number }[];
  warnings: { text: string; hint: string }[]; unknowns: { path: string; reason: string }[];
}
interface Curve { pool: string; device: string; steps: number[]; bytes: (number | null)[] }
export interface RawDiff { diff: Diff; curves: Curve[][]; columns: number; aggregated: string[] }

// The first run is what the others are measured by: it is quiet.
const COLOURS = ["unknown", "parameters", "gradients", "activations", "optimizer", "temporaries", "inputs"];
const colourOf = (run: number) => COLOURS[run === 0 ? 0 : 1 + ((run - 1) % (COLOURS.length - 1))]!;
const letter = (run: number) => (run < 26 ? String.fromCharCode(65 + run) : `run ${run + 1}`);

function signed(delta: number | null): HTMLElement {
  if (delta === null) return el("span", { class: "none" }, "–");
  return el("data", { value: String(delta), title: (delta > 0 ? "+" : "") + whole(delta) + " bytes", class: delta > 0 ? "rise" : delta < 0 ? "fall" : "none" },
    delta === 0 ? "same" : (delta > 0 ? "+" : "") + bytes(delta));
}

function legend(diff: Diff): HTMLElement {
  return el("ul", { class: "legend" }, ...diff.runs.map((run, at) => el("li", {}, el("i", { class: "swatch " + colourOf(at), "aria-hidden": "true" }), `${letter(at)}: ${run}`)));
}

// Lines of several runs over each other. `breaks` are where steps begin.
function lines(label: string, series: (number | null)[][], names: string[], perName: number, height: number): HTMLElement {
  const length = Math.max(1, ...series.map((one) => one.length));
  const most = Math.max(1, ...series.map((one) => one.reduce<number>((a, b) => Math.max(a, b ?? 0), 0)));
  return chart(label, height, most, ({ g, x0, x1, y0, y1, names: below, y: Y }) => {
    const X = (at: number) => x0 + (at / length) * (x1 - x0);
    let free = x0;
    names.forEach((name, at) => {
      const x = X(at * perName);
      if (perName > 1 && at > 0) { g.fillStyle = colour("mark"); g.fillRect(x, y0, 1, y1 - y0); }
      const middle = x + (X(perName) - x0) / 2, wide = g.measureText(name).width;
      if (middle - wide / 2 >= free && middle + wide / 2 <= x1) {
        g.fillStyle = colour("soft");
        g.fillText(name, middle, below);
        free = middle + wide / 2 + 10;
      }
    });
    // The first run last, as a line over the others' areas would hide it.
    for (let run = series.length - 1; run >= 0; run--) {
      const one = series[run]!;
      g.strokeStyle = colour(colourOf(run));
      g.lineWidth = run === 0 ? 2 : 1.6;
      g.beginPath();
      let isOn = false;
      one.forEach((value, at) => {
        if (value === null) { isOn = false; return; }
        if (isOn) g.lineTo(X(at), Y(value)); else g.moveTo(X(at), Y(value));
        g.lineTo(X(at + 1), Y(value));
        isOn = true;
      });
      g.stroke();
      g.lineWidth = 1;
    }
  });
}

// Rows with a bar for each run, side by side.
function bars(diff: Diff, rows: Row[]): HTMLElement {
  const most = Math.max(1, ...rows.flatMap((row) => row.bytes.map((value) => value ?? 0)));
  const list = el("div", { class: "sides" });
  for (const row of rows) {
    const name = row.what.startsWith("(") ? row.what.slice(1, -1) : row.what;
    const words = row.bytes.map((value, run) => `${letter(run)} ${value === null ? "not known" : bytes(value)}`).join(", ");
    const group = el("div", { class: "pair", role: "img", "aria-label": `${name}: ${words}` });
    row.bytes.forEach((value, run) => {
      const bar = el("i", { class: colourOf(run) });
      bar.style.width = (100 * (value ?? 0)) / most + "%";
      group.append(el("div", { class: "side", title: `${diff.runs[run]}: ${value === null ? "not known" : whole(value) + " bytes"}` }, bar, size(value)));
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
        return el("div", { class: "card" }, el("h2", {}, el("i", { class: "swatch " + colourOf(at), "aria-hidden": "true" }), `${letter(at)}: ${run}`),
          el("p", { class: "figure" }, size(value, "unknown")),
          el("p", { class: "hint" }, at === 0 ? `${main.figure === "ever" ? "peak of the run" : "peak"}, which the others are compared with` : el("span", {}, signed(delta), share, main.within_spread ? ", within what repeats differ by" : "")),
          repeats > 1 && low !== null && high !== null ? el("p", { class: "hint" }, `median of ${repeats} runs, ${bytes(low)} to ${bytes(high)}`) : null);
      })));
    }
    const curves = raw.curves.map((of) => of.find((curve) => curve.pool === pool) ?? of.find((curve) => curve.device === main?.device) ?? null);
    if (curves.filter(Boolean).length > 1) {
      const out = section("curves", "Within the steps", "Each step is drawn as wide as the others, whatever time it took: the first step of each run over the first of the others, and so on. Each point is the highest of its part of the step.");
      const count = Math.max(...curves.map((curve) => curve?.steps.length ?? 0));
      out.append(legend(diff), lines(`Memory of ${pool} within ${count} traced steps of ${diff.runs.length} runs; the tables below have the figures.`,
        curves.map((curve) => curve?.bytes ?? []), Array.from({ length: count }, (_, at) => `step ${at + 1}`), raw.columns, 260));
      parts.push(out);
    }
    const steps = rows.filter((row) => row.by === "step");
    if (steps.length > 1) {
      const isPeak = steps.every((row) => row.figure === "peak");
      const out = section("steps", "Step by step", isPeak ? "The peak of each step, steps matched by number." : "In use at the end of each step (its peak where every run tells it), steps matched by number.");
      out.append(legend(diff), lines(`${isPeak ? "Peaks" : "Memory in use"} of ${steps.length} steps of ${diff.runs.length} runs; the table has each.`,
        diff.runs.map((_, run) => steps.map((row) => row.bytes[run] ?? null)), steps.map((row) => String(row.step ?? "")), 1, 200));
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
      const out = section(by + "s", title, "Those that changed most first.");
      out.append(bars(diff, list.slice(0, 12)));
      if (list.length > 12) out.append(el("p", { class: "hint" }, `${whole(list.length - 12)} more are in the table.`));
      parts.push(out);
    }
    const out = section("rows", "Every figure");
    out.append(table<Row>([
      { title: "by", value: (row) => row.by },
      ...diff.runs.map((_, run) => ({ title: letter(run), number: true, value: (row: Row) => row.bytes[run] ?? null, show: (row: Row) => size(row.bytes[run]) })),
      ...diff.runs.slice(1).map((_, at) => ({ title: diff.runs.length > 2 ? `${letter(at + 1)} − A` : "difference", number: true,
        value: (row: Row) => row.deltas_bytes[at + 1] ?? null, show: (row: Row) => signed(row.deltas_bytes[at + 1] ?? null) })),
      ...(rows.some((row) => row.spread_bytes !== null) ? [{ title: "spread", number: true, value: (row: Row) => row.spread_bytes, show: (row: Row) => size(row.spread_bytes) }] : []),
      { title: "what", wide: true, value: (row: Row) => row.what },
    ], rows, { filter: "Filter by op, layer, role or step", caption: "Every figure of the comparison", first: 25 }));
    parts.push(out);
    const notes = section("notes", "Notes"), list = el("ul", {});
    for (const warning of diff.warnings) list.append(el("li", {}, capital(warning.text) + ".", warning.hint ? el("span", { class: "hint" }, " " + capital(warning.hint) + ".") : null));
    for (const text of raw.aggregated) list.append(el("li", {}, "To keep this file small: " + text + "."));
    if (list.children.length > 0) notes.append(list);
    diff.sides.forEach((side, at) => notes.append(el("p", { class: "hint" }, `${letter(at)}: ${side.files.join(", ")} (${[side.framework, side.format].filter(Boolean).join(", ")})`)));
    notes.append(el("p", { class: "hint" }, "Sizes are in units of 1,024; each has its exact bytes as a tip."));
    parts.push(notes);
    page.replaceChildren(...parts.filter((part): part is HTMLElement => part !== null));
  };
  show(pools[0]);
}
