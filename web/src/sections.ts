// The parts of the page below the charts: the whole run, steps, tables, notes.

import { chart, ticks } from "./chart";
import { Data, Picture, Pool, Report } from "./data";
import { bytes, colour, duration, el, legendItem, section, size, swatch, time, whole } from "./dom";
import { table } from "./table";
import { missing, plural, sentence, term } from "./words";

interface Bar { name: string; peak: number | null; end: number | null; group: string }

function bars(label: string, list: Bar[], height: number): HTMLElement {
  const most = Math.max(1, ...list.map((bar) => Math.max(bar.peak ?? 0, bar.end ?? 0)));
  return chart(label, height, most, ({ g, x0, x1, y1, names, y: Y }) => {
    const step = Math.min(64, (x1 - x0) / list.length), wide = Math.max(0.7, step * (step > 6 ? 0.72 : 1));
    let free = 0;
    list.forEach((bar, at) => {
      const x = x0 + at * step + (step - wide) / 2;
      if (bar.peak !== null) {
        g.fillStyle = colour(bar.group);
        g.fillRect(x, Y(bar.peak), wide, y1 - Y(bar.peak));
      }
      if (bar.end !== null) {
        g.fillStyle = bar.peak === null ? colour("unknown") : colour("ink");
        if (bar.peak === null) g.fillRect(x, Y(bar.end), wide, y1 - Y(bar.end)); else g.fillRect(x, Y(bar.end) - 0.75, wide, 1.5);
      }
      const middle = x + wide / 2, width = g.measureText(bar.name).width;
      if (middle - width / 2 > free) {
        g.fillStyle = colour("soft");
        g.fillText(bar.name, middle, names);
        free = middle + width / 2 + 8;
      }
    });
  });
}

// A run that goes on after its trace, by the framework's counters.
export function wholeRun(picture: Picture): HTMLElement | null {
  const { run, pool } = picture;
  if (!run || run.time.length === 0) return null;
  const begin = Math.min(picture.begin, run.time[0]!), end = run.time[run.time.length - 1]!;
  const highest = run.value.reduce((a, b) => Math.max(a, b), 0), ever = pool.lifetime_peak_bytes;
  const isBetween = ever !== null && ever > highest;
  const out = section("run", "The whole run",
    "The trace covers the shaded part, which the charts above show. The line comes from readings of the framework's counters: a peak between two readings is not shown.");
  out.append(el("ul", { class: "legend" }, legendItem("stroke run", term("in use"), " (", term("counter readings"), ")"), legendItem("traced", "traced"),
    isBetween ? legendItem("stroke peak", term("peak of the process")) : null), chart(`Memory in use over the whole run of ${duration(end - begin)}, the highest reading ${bytes(highest)}.`, 190, Math.max(1, highest, ever ?? 0), ({ g, x0, x1, y0, y1, names, y: Y }) => {
    const X = (at: number) => x0 + ((at - begin) / Math.max(1, end - begin)) * (x1 - x0);
    g.fillStyle = colour("traced");
    g.fillRect(X(picture.begin), y0, Math.max(1, X(picture.end) - X(picture.begin)), y1 - y0);
    g.strokeStyle = colour("activations");
    g.lineWidth = 1.5;
    g.beginPath();
    run.value.forEach((value, at) => {
      if (at > 0) g.lineTo(X(run.time[at]!), Y(run.value[at - 1]!));
      g.lineTo(X(run.time[at]!), Y(value));
    });
    g.stroke();
    g.lineWidth = 1;
    g.fillStyle = colour("soft");
    const times = ticks(begin / 1e9, end / 1e9, Math.max(2, (x1 - x0) / 110));
    for (const at of times) {
      const x = X(at * 1e9);
      if (x > x0 + 18 && x < x1 - 18) g.fillText(time(at * 1e9, 1e9 * ((times[1] ?? 0) - (times[0] ?? 0) || 1)), x, names);
    }
    if (isBetween) {
      g.fillStyle = colour("limit");
      g.fillRect(x0, Math.round(Y(ever)), x1 - x0, 1);
      g.textAlign = "right";
      g.fillText(`peak of the process ${bytes(ever)}`, x1 - 4, Y(ever) + 10);
    }
  }));
  return out;
}

const GROUPS: Record<string, string> = { train: "parameters", validation: "activations", predict: "optimizer", other: "inputs" };

export function steps(report: Report, pool: Pool): HTMLElement | null {
  const list = report.steps.filter((step) => step.pool === pool.name && step.pid === pool.pid);
  const out = section("steps", "Step by step");
  if (list.length === 0) {
    // One moment has no steps.
    if (pool.moment !== "peak") return null;
    out.append(missing("No steps: Vramline found none in this file. Record the job with {run}, or mark the steps of your loop with ", el("code", {}, "rec.step(n)"), "."));
    return out;
  }
  const phases = [...new Set(list.map((step) => step.phase))];
  const highest = list.reduce((most, step) => Math.max(most, step.peak_bytes ?? 0), 0);
  const ends = (one: { current_bytes: number | null; peak_bytes: number | null }) => one.current_bytes !== null && one.peak_bytes !== null;
  const isPhaseKnown = (phase: string) => list.some((step) => step.phase === phase && step.peak_bytes !== null);
  out.append(el("ul", { class: "legend" }, ...phases.filter(isPhaseKnown).map((phase) => legendItem(GROUPS[phase] ?? "unknown", phase === "other" ? "peak of the step" : `peak of the step, ${phase}`)),
      list.some(ends) ? legendItem("stroke ink", "in use at the end of the step") : null,
      list.some((step) => step.peak_bytes === null) ? legendItem("unknown", "in use at the end of the step; its peak is unknown") : null),
    bars(`Peaks of ${plural(list.length, "step")}, the highest ${bytes(highest)}; the table below lists each step.`,
      list.map((step) => ({ name: String(step.step), peak: step.peak_bytes, end: step.current_bytes, group: GROUPS[step.phase] ?? "unknown" })), 190));
  const epochs = report.epochs.filter((epoch) => epoch.pool === pool.name);
  if (epochs.length > 0) {
    const fits = epochs.some((epoch) => (epoch.fit ?? 0) > 1);
    out.append(el("h3", {}, fits ? "Epoch by epoch (number of the fit, then of the epoch)" : "Epoch by epoch"),
      el("ul", { class: "legend" }, epochs.some((epoch) => epoch.peak_bytes !== null) ? legendItem("gradients", "peak of the epoch") : null,
        epochs.some(ends) ? legendItem("stroke ink", "in use at the end of the epoch") : null,
        epochs.some((epoch) => epoch.peak_bytes === null) ? legendItem("unknown", "in use at the end of the epoch; its peak is unknown") : null),
      bars(`Peaks of ${plural(epochs.length, "epoch")}`, epochs.map((epoch) => ({ name: fits ? `${epoch.fit ?? ""}.${epoch.epoch}` : String(epoch.epoch), peak: epoch.peak_bytes, end: epoch.current_bytes, group: "gradients" })), 150));
  }
  out.append(el("details", {}, el("summary", {}, list.length === 1 ? "1 step" : `All ${whole(list.length)} steps`), table([
    { title: "step", number: true, value: (step) => step.step },
    { title: "phase", value: (step) => step.phase },
    { title: "fit", number: true, value: (step) => step.fit },
    { title: "epoch", number: true, value: (step) => step.epoch },
    { title: "begins", number: true, value: (step) => step.begin_ns, show: (step) => time(step.begin_ns) },
    { title: "peak", number: true, value: (step) => step.peak_bytes, show: (step) => size(step.peak_bytes) },
    { title: "in use at its end", number: true, value: (step) => step.current_bytes, show: (step) => size(step.current_bytes) },
    { title: "known from", value: (step) => step.how },
    { title: "name", wide: true, value: (step) => step.name },
  ], list, { filter: "Filter by phase or name", caption: "Steps" })));
  return out;
}

// How steps repeat each other, and which ops request other sizes each time.
function patternViews(patterns: NonNullable<Pool["patterns"]>): HTMLElement[] {
  const percent = (share: number | null) => (share === null ? "unknown" : (share * 100).toFixed(1) + " %");
  const steady = patterns.steady_from_step === null ? "the last traced step still requests new sizes" : `sizes are steady from step ${patterns.steady_from_step} on`;
  const out: HTMLElement[] = [
    el("h3", {}, "Requests from step to step"),
    el("p", {}, `${percent(patterns.repeated_requests)} of the requests (${percent(patterns.repeated_bytes)} of the bytes) repeat a request of an earlier step, over ${plural(patterns.steps, "traced step")}; ${steady}.`),
  ];
  if (patterns.churning_ops === 0) return out;
  out.push(el("p", {}, `${plural(patterns.churning_ops, "op requests", "ops request")} other sizes in most steps. The pool reserves `, size(patterns.pool_bytes, "an unknown amount"),
    "; with these ops at their largest sizes it would reserve ", size(patterns.padded_pool_bytes, "an unknown amount"), "."));
  out.push(table<(typeof patterns.churning)[number]>([
    { title: "sizes", number: true, value: (row) => row.sizes, show: (row) => whole(row.sizes) },
    { title: "smallest", number: true, value: (row) => row.smallest_bytes, show: (row) => size(row.smallest_bytes) },
    { title: "largest", number: true, value: (row) => row.largest_bytes, show: (row) => size(row.largest_bytes) },
    { title: "layer", value: (row) => row.layer },
    { title: "op", wide: true, value: (row) => row.op },
  ], patterns.churning, { caption: "Ops that request other sizes in most steps" }));
  return out;
}

export function tables(report: Report, pool: Pool): HTMLElement {
  const out = section("tables", pool.held_long.length > 0 ? "Pools and long-lived blocks" : "Pools");
  out.append(table<Pool>([
    { title: "pool", value: (row) => row.name, wide: true },
    { title: "device", value: (row) => row.device },
    { title: "process", number: true, value: (row) => row.pid },
    { title: "peak", number: true, value: (row) => row.peak_bytes, show: (row) => size(row.peak_bytes) },
    { title: "peak of the process", number: true, value: (row) => row.lifetime_peak_bytes, show: (row) => size(row.lifetime_peak_bytes) },
    { title: "limit", number: true, value: (row) => row.limit_bytes, show: (row) => el("span", {}, size(row.limit_bytes), row.limit_by === "built-in" ? " (built-in)" : "") },
    { title: "allocations", number: true, value: (row) => row.allocs, show: (row) => (row.allocs === null ? "–" : whole(row.allocs)) },
    { title: "frees", number: true, value: (row) => row.frees, show: (row) => (row.frees === null ? "–" : whole(row.frees)) },
  ], report.pools, { caption: "Pools" }));
  if (pool.held_long.length > 0) {
    out.append(el("h3", {}, "Large blocks that were in use for long"), table<Pool["held_long"][number]>([
      { title: "bytes", number: true, value: (row) => row.bytes, show: (row) => size(row.bytes) },
      { title: "in use for", number: true, value: (row) => row.held_ns, show: (row) => duration(row.held_ns) },
      { title: "freed", number: true, value: (row) => row.freed_ns, show: (row) => (row.freed_ns === null ? "not freed" : time(row.freed_ns)) },
      { title: "role", value: (row) => row.role, show: (row) => el("span", {}, swatch(row.role), row.role) },
      { title: "op", wide: true, value: (row) => row.op || "–" },
      { title: "shape", value: (row) => [row.shape, row.dtype].filter(Boolean).join(" ") },
    ], pool.held_long, { caption: "Blocks with the highest bytes times time" }));
  }
  if (pool.patterns) out.append(...patternViews(pool.patterns));
  return out;
}

export function notes(data: Data): HTMLElement {
  const { report } = data;
  const out = section("notes", "Notes");
  const list = el("ul", {});
  for (const warning of report.warnings) list.append(el("li", {}, sentence(warning.text), warning.hint ? el("span", { class: "hint" }, " " + sentence(warning.hint)) : null));
  for (const text of data.aggregated) list.append(el("li", {}, "To keep this file small, " + text + "."));
  if (report.marks.length > 0) {
    out.append(el("details", {}, el("summary", {}, `Events of the run: ${plural(report.marks.length, "mark")}`), table<Report["marks"][number]>([
      { title: "at", number: true, value: (row) => row.time_ns, show: (row) => time(row.time_ns) },
      { title: "kind", value: (row) => row.kind },
      { title: "label", wide: true, value: (row) => row.label },
      { title: "device", value: (row) => row.device },
      { title: "in use", number: true, value: (row) => row.current_bytes, show: (row) => size(row.current_bytes) },
    ], report.marks, { filter: "Filter by kind or label", caption: "Marks" })));
  }
  if (list.children.length > 0) out.append(list);
  if (report.unknowns.length > 0) {
    out.append(el("details", {}, el("summary", {}, `Unknown values and why: ${whole(report.unknowns.length)}`), table<Report["unknowns"][number]>([
      { title: "field", value: (row) => row.path },
      { title: "why", wide: true, value: (row) => row.reason },
      { title: "how to record it", wide: true, value: (row) => row.switch ?? "" },
    ], report.unknowns, { caption: "Unknown values" })));
  }
  const source = report.source;
  out.append(el("p", { class: "hint" }, `Read from ${source.files.join(", ")} (${source.format}). Clock: ${source.clock}. 1 KiB is 1,024 bytes; point at a size to see its exact bytes.`));
  return out;
}
