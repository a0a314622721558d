// The parts of the page around the charts: numbers, steps, findings, the post-mortem, tables, notes.

import { chart, ticks } from "./chart";
import { Data, Failure, LedgerLine, LineKind, Picture, Pool, Report } from "./data";
import { bytes, colour, copyButton, duration, el, section, size, time, whole } from "./dom";
import { table } from "./table";
import { capital, swatch } from "./timeline";

function reasonOf(report: Report, path: string): string {
  return report.unknowns.find((unknown) => unknown.path === path)?.reason ?? "nothing that was read tells it";
}

// The three numbers that matter.
export function numbers(report: Report, pool: Pool): HTMLElement {
  const at = report.pools.indexOf(pool);
  const card = (id: string, title: string, amount: number | null, words: string) =>
    el("div", { class: "card", id }, el("h2", {}, title), el("p", { class: "figure" }, size(amount, "unknown")), el("p", { class: "hint" }, words));
  const line = (kind: LineKind, is: (entry: LedgerLine) => boolean = () => true) =>
    report.ledger.find((entry) => entry.device === pool.device && entry.line === kind && is(entry));
  // A job may have many processes; the driver may number the only one otherwise.
  const job = line("this job", (entry) => entry.pid !== null && entry.pid === pool.pid)
    ?? (report.pools.every((one) => one.pid === pool.pid) ? line("this job", (entry) => entry.bytes !== null) ?? line("this job") : undefined);
  const taken = line("pool", (entry) => job === undefined || (entry.part_of !== null && report.ledger[entry.part_of] === job));
  const isHost = pool.device.startsWith("CPU"), from = isHost ? "of host memory" : "from the driver";
  const teller = (entry: LedgerLine) => (entry.source === "host" ? "kernel" : entry.source);
  // A default that nobody set and no memory backs is no limit.
  const isBuiltIn = pool.limit_by === "built-in", limit = isBuiltIn ? null : pool.limit_bytes;
  const ever = pool.lifetime_peak_bytes !== null && pool.lifetime_peak_bytes > (pool.peak_bytes ?? 0) && report.run ? pool.lifetime_peak_bytes : null;
  const title = { peak: "Peak in use", dump: "In use at the dump", program: "Asked for" }[pool.moment];
  const peak = card("peak", title, pool.peak_bytes, pool.peak_bytes === null ? capital(reasonOf(report, `pools[${at}].peak_bytes`))
    : (pool.peak_at_ns === null ? `in ${pool.name}` : `in ${pool.name}, at ${time(pool.peak_at_ns)}`) + (ever ? `; ${bytes(ever)} later in the run` : ""));
  const held = job && job.bytes !== null ? card("taken", "Held by the process", job.bytes, `by the ${teller(job)}, everything included`)
    : taken && taken.bytes !== null ? card("taken", "Taken by the pool", taken.bytes, `${from}, by the ${teller(taken)}`)
    : pool.replay?.exact ? card("taken", "Taken by the pool", pool.replay.pool_bytes, `${from} at most, by exact replay`)
    : pool.caching ? card("taken", "Reserved by the pool", pool.caching.reserved_peak_bytes, `from the driver ${pool.moment === "dump" ? "at the dump" : "at most"}, by the snapshot`)
    : card("taken", isHost ? "Taken by the pool" : "Taken from the driver", null, capital(job?.reason || taken?.reason || "no figure of the driver, and no replay from the start"));
  const free = line("free");
  const left = free && free.bytes !== null ? card("free", isHost ? "Available host memory" : "Free on the device", free.bytes, `by the ${teller(free)}`)
    : limit !== null && pool.peak_bytes !== null ? card("free", "Headroom", limit - pool.peak_bytes, `to the pool's limit of ${bytes(limit)}`)
    : card("free", "Headroom", null, isBuiltIn ? `${isHost ? "TensorFlow's" : "The framework's"} built-in default for this pool, ${bytes(pool.limit_bytes ?? 0)}, is no limit: no memory backs it` : capital(free?.reason || reasonOf(report, `pools[${at}].limit_bytes`)));
  return el("section", { class: "cards", "aria-label": "The three numbers that matter" }, peak, held, left);
}

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
  const out = section("run", "The whole run",
    "The trace covers the stretch that is shaded, and is drawn above. Outside of it the framework's counters were read now and then: what was between two readings is not seen.");
  out.append(chart(`Memory in use over the whole run of ${duration(end - begin)}, the highest reading ${bytes(highest)}.`, 190, Math.max(1, highest, ever ?? 0), ({ g, x0, x1, y0, y1, names, y: Y }) => {
    const X = (at: number) => x0 + ((at - begin) / Math.max(1, end - begin)) * (x1 - x0);
    g.fillStyle = colour("mark");
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
    if (ever !== null && ever > highest) {
      g.fillStyle = colour("limit");
      g.fillRect(x0, Math.round(Y(ever)), x1 - x0, 1);
      g.textAlign = "right";
      g.fillText(`peak of the run ${bytes(ever)}, between readings`, x1 - 4, Y(ever) + 10);
    }
  }));
  return out;
}

const GROUPS: Record<string, string> = { train: "parameters", validation: "activations", predict: "optimizer", other: "inputs" };

export function steps(report: Report, pool: Pool): HTMLElement | null {
  const list = report.steps.filter((step) => step.pool === pool.name && step.pid === pool.pid);
  if (list.length === 0) return null;
  const out = section("steps", "Step by step");
  const phases = [...new Set(list.map((step) => step.phase))];
  const highest = list.reduce((most, step) => Math.max(most, step.peak_bytes ?? 0), 0);
  out.append(el("ul", { class: "legend" }, ...phases.map((phase) => el("li", {}, swatch(GROUPS[phase] ?? "unknown"), `${phase}: peak of the step`)),
      el("li", {}, el("i", { class: "swatch stroke ink", "aria-hidden": "true" }), "in use at its end"),
      list.some((step) => step.peak_bytes === null) ? el("li", {}, swatch("unknown"), "own peak not known") : null),
    bars(`Peaks of ${list.length} steps, the highest ${bytes(highest)}; the table below has each.`,
      list.map((step) => ({ name: String(step.step), peak: step.peak_bytes, end: step.current_bytes, group: GROUPS[step.phase] ?? "unknown" })), 190));
  const epochs = report.epochs.filter((epoch) => epoch.pool === pool.name);
  if (epochs.length > 0) {
    const fits = epochs.some((epoch) => (epoch.fit ?? 0) > 1);
    out.append(el("h3", {}, fits ? "Epoch by epoch, as fit.epoch" : "Epoch by epoch"),
      bars(`Peaks of ${epochs.length} epochs`, epochs.map((epoch) => ({ name: fits ? `${epoch.fit ?? ""}.${epoch.epoch}` : String(epoch.epoch), peak: epoch.peak_bytes, end: epoch.current_bytes, group: "gradients" })), 150));
  }
  out.append(el("details", {}, el("summary", {}, `All ${whole(list.length)} steps`), table([
    { title: "step", number: true, value: (step) => step.step },
    { title: "phase", value: (step) => step.phase },
    { title: "fit", number: true, value: (step) => step.fit },
    { title: "epoch", number: true, value: (step) => step.epoch },
    { title: "begins", number: true, value: (step) => step.begin_ns, show: (step) => time(step.begin_ns) },
    { title: "peak", number: true, value: (step) => step.peak_bytes, show: (step) => size(step.peak_bytes) },
    { title: "at its end", number: true, value: (step) => step.current_bytes, show: (step) => size(step.current_bytes) },
    { title: "told by", value: (step) => step.how },
    { title: "name", wide: true, value: (step) => step.name },
  ], list, { filter: "Filter by phase or name", caption: "Steps" })));
  return out;
}

export function findings(report: Report): HTMLElement | null {
  if (report.findings.length === 0) return null;
  const out = section("findings", "What to do about it");
  for (const finding of report.findings) {
    out.append(el("article", { class: "finding" },
      el("h3", {}, finding.rule.replace(/-/g, " "), finding.bytes > 0 ? " · " : "", finding.bytes > 0 ? size(finding.bytes) : null),
      el("p", {}, capital(finding.text)),
      finding.fix ? el("div", { class: "fix" }, el("p", {}, el("b", {}, "Fix "), finding.fix), copyButton(finding.fix, "the fix")) : null,
      finding.verify ? el("div", { class: "fix" }, el("p", {}, el("b", {}, "Check "), finding.verify), copyButton(finding.verify, "how to check it")) : null));
  }
  return out;
}

const VERDICTS: Record<string, string> = {
  device: "the pool's limit left enough, but the driver refused: a neighbour or a context has it",
  fragmented: "enough was free, but in pieces", slack: "enough was taken by chunks beyond what was asked for",
  exhausted: "it does not fit beside what is held", limit: "it does not fit under the limit that was set",
};

// Of the core's picture of a region: in use, mostly slack, mostly free, free.
const SIGNS: Record<string, string> = { "#": "full", x: "waste", ":": "mixed", ".": "empty" };

function failureView(failure: Failure, at: number): HTMLElement {
  const asked = failure.requested_bytes ?? failure.requested_low_bytes;
  const figures: [string, number | null][] = [["asked for", asked], ["in use", failure.in_use_bytes], ["free in the pool", failure.free_bytes],
    ["largest free piece", failure.largest_free_bytes], ["limit", failure.limit_bytes], ["short by", failure.short_by_bytes]];
  // Texts round their sizes: then only the two ends are known.
  const range = failure.short_by_bytes === null && failure.short_by_low_bytes !== null && failure.short_by_high_bytes !== null
    ? [el("dt", {}, "short by"), el("dd", {}, `${bytes(failure.short_by_low_bytes)} to ${bytes(failure.short_by_high_bytes)}`)] : [];
  const out = el("article", { class: "finding" },
    el("h3", {}, `Failure ${at + 1}: `, failure.verdict ?? "why, cannot be told"),
    el("p", {}, failure.verdict ? capital(VERDICTS[failure.verdict] ?? "") + "." : "The input does not tell enough for a verdict.",
      failure.op ? ` Asked by ${failure.op}${failure.shape ? " for " + failure.shape : ""}.` : ""),
    el("dl", { class: "figures" }, ...figures.filter(([, amount]) => amount !== null).flatMap(([name, amount]) => [el("dt", {}, name), el("dd", {}, size(amount))]), ...range));
  if (failure.regions.length > 0) {
    const most = Math.max(...failure.regions.map((region) => region.bytes));
    const pool = el("div", { class: "pool", role: "img", "aria-label": `The pool at the failure: ${failure.regions.length} regions` });
    for (const region of failure.regions.slice(0, 40)) {
      // Signs of the map: what each stretch of the region is.
      const strip = el("div", { class: "strip", title: `${bytes(region.bytes)}: ${bytes(region.in_use_bytes)} in use, ${bytes(region.free_bytes)} free, ${whole(region.chunks)} chunks` });
      strip.style.width = Math.max(2, (100 * region.bytes) / most) + "%";
      for (const sign of [...region.map]) strip.append(el("i", { class: SIGNS[sign] ?? "empty" }));
      pool.append(strip);
    }
    out.append(el("p", { class: "hint" }, "The pool at that moment, a bar for each region: blue is in use, grey is slack, pale is mostly free, empty is free."), pool);
  }
  if (failure.holders.length > 0) {
    out.append(el("details", {}, el("summary", {}, "Who held it"), table([
      { title: "bytes", number: true, value: (row) => row.bytes, show: (row) => size(row.bytes) },
      { title: "count", number: true, value: (row) => row.count },
      { title: "each", number: true, value: (row) => row.chunk_bytes, show: (row) => size(row.chunk_bytes) },
      { title: "op", wide: true, value: (row) => row.op || "–" },
    ], failure.holders, { caption: "Chunks in use at the failure" })));
  }
  for (const advice of failure.advice) out.append(el("div", { class: "fix" }, el("p", {}, el("b", {}, "Fix "), advice.text), copyButton(advice.text, "the advice")));
  return out;
}

export function postmortem(data: Data): HTMLElement | null {
  if (data.failures.length === 0) return null;
  const out = section("oom", "Why memory ran out");
  const shown = data.failures.slice(0, 10);
  out.append(...shown.map(failureView));
  if (data.failures.length > shown.length) out.append(el("p", { class: "note" }, `${whole(data.failures.length - shown.length)} more failures: vramline oom lists them.`));
  return out;
}

// How steps repeat each other, and which ops ask for other sizes each time.
function patternViews(patterns: NonNullable<Pool["patterns"]>): HTMLElement[] {
  const percent = (share: number | null) => (share === null ? "—" : (share * 100).toFixed(1) + " %");
  const steady = patterns.steady_from_step === null ? "the last traced step still brings new sizes" : `steady from step ${patterns.steady_from_step} on`;
  const out: HTMLElement[] = [
    el("h3", {}, "Requests from step to step"),
    el("p", {}, `${percent(patterns.repeated_requests)} of the requests and ${percent(patterns.repeated_bytes)} of the bytes of a step come again, over ${whole(patterns.steps)} traced steps; ${steady}.`),
  ];
  if (patterns.churning_ops === 0) return out;
  out.push(el("p", {}, `${whole(patterns.churning_ops)} ops ask for other sizes in most steps. The pool takes ${size(patterns.pool_bytes)}; with these ops at their largest sizes it would take ${size(patterns.padded_pool_bytes)}.`));
  out.push(table<(typeof patterns.churning)[number]>([
    { title: "sizes", number: true, value: (row) => row.sizes, show: (row) => whole(row.sizes) },
    { title: "smallest", number: true, value: (row) => row.smallest_bytes, show: (row) => size(row.smallest_bytes) },
    { title: "largest", number: true, value: (row) => row.largest_bytes, show: (row) => size(row.largest_bytes) },
    { title: "layer", value: (row) => row.layer },
    { title: "op", wide: true, value: (row) => row.op },
  ], patterns.churning, { caption: "Ops that ask for other sizes in most steps" }));
  return out;
}

export function tables(report: Report, pool: Pool): HTMLElement {
  const out = section("tables", "Pools and long-held blocks");
  out.append(table<Pool>([
    { title: "pool", value: (row) => row.name, wide: true },
    { title: "device", value: (row) => row.device },
    { title: "process", number: true, value: (row) => row.pid },
    { title: "peak", number: true, value: (row) => row.peak_bytes, show: (row) => size(row.peak_bytes) },
    { title: "ever", number: true, value: (row) => row.lifetime_peak_bytes, show: (row) => size(row.lifetime_peak_bytes) },
    { title: "limit", number: true, value: (row) => row.limit_bytes, show: (row) => el("span", {}, size(row.limit_bytes), row.limit_by === "built-in" ? " (built-in)" : "") },
    { title: "allocs", number: true, value: (row) => row.allocs, show: (row) => (row.allocs === null ? "–" : whole(row.allocs)) },
    { title: "frees", number: true, value: (row) => row.frees, show: (row) => (row.frees === null ? "–" : whole(row.frees)) },
  ], report.pools, { caption: "Pools" }));
  if (pool.held_long.length > 0) {
    out.append(el("h3", {}, "Large and held for long"), table<Pool["held_long"][number]>([
      { title: "bytes", number: true, value: (row) => row.bytes, show: (row) => size(row.bytes) },
      { title: "held", number: true, value: (row) => row.held_ns, show: (row) => duration(row.held_ns) },
      { title: "freed", number: true, value: (row) => row.freed_ns, show: (row) => (row.freed_ns === null ? "never" : time(row.freed_ns)) },
      { title: "role", value: (row) => row.role, show: (row) => el("span", {}, swatch(row.role), row.role) },
      { title: "op", wide: true, value: (row) => row.op || "–" },
      { title: "shape", value: (row) => [row.shape, row.dtype].filter(Boolean).join(" ") },
    ], pool.held_long, { caption: "Blocks with the most bytes times time" }));
  }
  if (pool.patterns) out.append(...patternViews(pool.patterns));
  return out;
}

export function notes(data: Data): HTMLElement {
  const { report } = data;
  const out = section("notes", "Notes");
  const list = el("ul", {});
  for (const warning of report.warnings) list.append(el("li", {}, capital(warning.text) + ".", warning.hint ? el("span", { class: "hint" }, " " + capital(warning.hint) + ".") : null));
  for (const text of data.aggregated) list.append(el("li", {}, "To keep this file small: " + text + "."));
  if (report.marks.length > 0) {
    out.append(el("details", {}, el("summary", {}, `What happened: ${whole(report.marks.length)} marks`), table<Report["marks"][number]>([
      { title: "at", number: true, value: (row) => row.time_ns, show: (row) => time(row.time_ns) },
      { title: "kind", value: (row) => row.kind },
      { title: "label", wide: true, value: (row) => row.label },
      { title: "device", value: (row) => row.device },
      { title: "in use", number: true, value: (row) => row.current_bytes, show: (row) => size(row.current_bytes) },
    ], report.marks, { filter: "Filter by kind or label", caption: "Marks" })));
  }
  if (list.children.length > 0) out.append(list);
  if (report.unknowns.length > 0) {
    out.append(el("details", {}, el("summary", {}, `What is not known, and why: ${report.unknowns.length}`), table<Report["unknowns"][number]>([
      { title: "field", value: (row) => row.path },
      { title: "why", wide: true, value: (row) => row.reason },
      { title: "what would tell it", wide: true, value: (row) => row.switch ?? "" },
    ], report.unknowns, { caption: "What is not known" })));
  }
  const source = report.source;
  out.append(el("p", { class: "hint" }, `Read from ${source.files.join(", ")} (${source.format}). Times are ${source.clock}. Sizes are in units of 1,024; each has its exact bytes as a tip.`));
  return out;
}
