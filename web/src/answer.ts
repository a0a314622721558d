// The top of the page: findings, why memory ran out, the three numbers, and what the peak is made of.

import { Data, Failure, LedgerLine, LineKind, Pool, Report, ROLES, whenHeld } from "./data";
import { bytes, copyButton, el, legendItem, percent, section, size, swatch, time, whole } from "./dom";
import { table } from "./table";
import { ask, capital, missing, partName, plural, sentence, term } from "./words";

function reasonOf(report: Report, path: string): string {
  return report.unknowns.find((unknown) => unknown.path === path)?.reason ?? "the file does not say";
}

// What ran, as the recording has it.
export function job(report: Report): HTMLElement | null {
  const { run } = report;
  if (!run) return null;
  const frameworks = [...new Set(run.processes.flatMap((process) => process.frameworks))];
  const parts = [run.command.length > 0 ? el("code", {}, run.command.join(" ")) : null, frameworks.join(", "), run.exit ? `exit: ${run.exit}` : ""].filter(Boolean);
  if (parts.length === 0) return null;
  return el("p", { id: "job", class: "hint" }, ...parts.flatMap((part, at) => (at > 0 ? [" · ", part] : [part])));
}

// The three numbers that matter.
export function numbers(report: Report, pool: Pool): HTMLElement {
  const at = report.pools.indexOf(pool);
  const card = (id: string, title: string, word: string, amount: number | null, words: string) =>
    el("div", { class: "card", id }, el("h2", {}, term(word, title)), el("p", { class: "figure" }, size(amount, "unknown")), el("p", { class: "hint" }, words));
  const line = (kind: LineKind, is: (entry: LedgerLine) => boolean = () => true) =>
    report.ledger.find((entry) => entry.device === pool.device && entry.line === kind && is(entry));
  // A job may have many processes; the driver may number the only one otherwise.
  const ofJob = line("this job", (entry) => entry.pid !== null && entry.pid === pool.pid)
    ?? (report.pools.every((one) => one.pid === pool.pid) ? line("this job", (entry) => entry.bytes !== null) ?? line("this job") : undefined);
  const taken = line("pool", (entry) => ofJob === undefined || (entry.part_of !== null && report.ledger[entry.part_of] === ofJob));
  const isHost = pool.device.startsWith("CPU");
  const source = (entry: LedgerLine) => ({
    driver: "as the driver reports it", calls: "by recorded driver calls", host: "as the kernel reports it", framework: "as the framework reports it", trace: "by the trace",
    replay: "by exact replay", derived: "derived from other figures", estimated: "an estimate",
  }[entry.source]);
  // A default that nobody set and no memory backs is no limit.
  const isBuiltIn = pool.limit_by === "built-in", limit = isBuiltIn ? null : pool.limit_bytes;
  const higher = pool.lifetime_peak_bytes !== null && pool.lifetime_peak_bytes > (pool.peak_bytes ?? 0) && report.run ? pool.lifetime_peak_bytes : null;
  const title = { peak: higher ? "Peak of the traced steps" : "Peak in use", dump: "In use at the dump", program: "Requested by the program", failure: "In use at the failure" }[pool.moment];
  const peak = card("peak", title, { peak: "peak", dump: "in use", program: "requested", failure: "in use" }[pool.moment], pool.peak_bytes,
    pool.peak_bytes === null ? capital(reasonOf(report, `pools[${at}].peak_bytes`))
      : (pool.peak_at_ns === null ? `in ${pool.name}` : `in ${pool.name}, at ${time(pool.peak_at_ns)}`) + (higher ? `; peak of the process: ${bytes(higher)}` : ""));
  const reserved = "Reserved by the pool";
  const held = ofJob && ofJob.bytes !== null ? card("taken", "Held by the process", "", ofJob.bytes, `${source(ofJob)}, everything included`)
    : taken && taken.bytes !== null ? card("taken", reserved, "reserved", taken.bytes, source(taken))
    : pool.replay?.exact ? card("taken", reserved, "reserved", pool.replay.pool_bytes, "at most, by exact replay")
    : pool.caching ? card("taken", reserved, "reserved", pool.caching.reserved_peak_bytes, pool.moment === "peak" ? "at most, by the snapshot" : "at the dump, by the snapshot")
    : card("taken", reserved, "reserved", null, capital(ofJob?.reason || taken?.reason || "the file does not say, and there is no replay from the start"));
  const free = line("free");
  const left = free && free.bytes !== null ? card("free", isHost ? "Available host memory" : "Free on the device", "", free.bytes, source(free))
    : limit !== null && pool.peak_bytes !== null ? card("free", "Headroom", "headroom", limit - pool.peak_bytes, `below the pool's limit of ${bytes(limit)}`)
    : card("free", "Headroom", "headroom", null, isBuiltIn
      ? `The built-in limit of this pool, ${bytes(pool.limit_bytes ?? 0)}, is only a default: no memory backs it`
      : capital(free?.reason || reasonOf(report, `pools[${at}].limit_bytes`)));
  return el("section", { class: "cards", "aria-label": "The three numbers that matter" }, peak, held, left);
}

// The parts of the peak as bars, the largest first; together they are the peak.
export function parts(pool: Pool): HTMLElement | null {
  const held = pool.at_peak;
  const out = section("parts", { peak: "What the peak is made of", dump: "What was in use at the dump", program: "What the compiled program requests", failure: "What was in use when an allocation failed" }[pool.moment]);
  if (!held) {
    if (pool.peak_bytes === null) return null;
    out.append(missing("No trace: the peak is known, what it is made of is not. Record a trace with {run}."), ask());
    return out;
  }
  const all: [string, number][] = [...ROLES.map((role): [string, number] => [role, held.by_role[role] ?? 0]), ["slack", held.slack_bytes], ["before", held.before_recording_bytes]];
  const list = all.filter(([, amount]) => amount > 0).sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...list.map(([, amount]) => amount));
  const rows = list.map(([part, amount]) => {
    const bar = el("i", { class: part });
    bar.style.width = (100 * amount) / most + "%";
    const name = partName(part);
    return el("tr", {}, el("th", { scope: "row" }, swatch(part), term(name)), el("td", { class: "number" }, size(amount)),
      el("td", { class: "number hint" }, percent(amount, held.in_use_bytes)), el("td", { class: "bar-cell", "aria-hidden": "true" }, bar));
  });
  out.append(el("table", { class: "parts" }, el("caption", { class: "offscreen" }, `The parts of ${bytes(held.in_use_bytes)} in use ${whenHeld(pool, "at the peak")}`), el("tbody", {}, ...rows)), ask());
  return out;
}

// A rule's word as a heading.
const titleOf = (rule: string) => capital(partName(rule).replace(/-/g, " ") + " ").trim();

export function findings(report: Report): HTMLElement | null {
  if (report.findings.length === 0) return null;
  const out = section("findings", report.findings.length === 1 ? "Finding" : "Findings");
  const view = (finding: Report["findings"][number]) => el("article", { class: "finding" },
    el("h3", {}, titleOf(finding.rule), finding.bytes > 0 ? " · " : "", finding.bytes > 0 ? size(finding.bytes) : null),
    el("p", {}, sentence(finding.text)),
    finding.fix ? el("div", { class: "fix" }, el("p", {}, el("b", {}, "Fix "), finding.fix), copyButton(finding.fix, "the fix")) : null,
    finding.verify ? el("div", { class: "fix" }, el("p", {}, el("b", {}, "Check "), finding.verify), copyButton(finding.verify, "how to check it")) : null);
  out.append(...report.findings.slice(0, 3).map(view));
  const others = report.findings.slice(3);
  if (others.length > 0) out.append(el("details", {}, el("summary", {}, `${plural(others.length, "more finding")}`), ...others.map(view)));
  return out;
}

// The core draws a region with these signs.
const SIGNS: Record<string, string> = { "#": "full", x: "waste", ":": "mixed", ".": "empty" };

function regionsView(failure: Failure): HTMLElement[] {
  const most = Math.max(...failure.regions.map((region) => region.bytes));
  const shown = failure.regions.slice(0, 40);
  const pool = el("div", { class: "pool", role: "img", "aria-label": `The pool at the failure: ${plural(failure.regions.length, "region")}` });
  for (const region of shown) {
    const strip = el("div", { class: "strip", title: `${bytes(region.bytes)}: ${bytes(region.in_use_bytes)} in use, ${bytes(region.free_bytes)} free, ${plural(region.chunks, "block")}` });
    strip.style.width = Math.max(2, (100 * region.bytes) / most) + "%";
    for (const sign of [...region.map]) strip.append(el("i", { class: SIGNS[sign] ?? "empty" }));
    pool.append(strip);
  }
  const left = failure.regions.length - shown.length;
  return [
    el("h4", {}, "The pool at the failure, one bar for each region"),
    el("ul", { class: "legend" }, legendItem("full", "in use"), legendItem("waste", "mostly rounding"), legendItem("mixed", "mostly free"), legendItem("empty", "free")),
    pool, ...(left > 0 ? [el("p", { class: "hint" }, `${plural(left, "more region")} not drawn.`)] : [])];
}

function failureView(failure: Failure, at: number, count: number): HTMLElement {
  const requested = failure.requested_bytes ?? failure.requested_low_bytes;
  const figures: [string, number | null][] = [["requested", requested], ["in use", failure.in_use_bytes], ["free in the pool", failure.free_bytes],
    ["largest free block", failure.largest_free_bytes], ["limit", failure.limit_bytes], ["short by", failure.short_by_bytes]];
  // Texts round their sizes: then only the two ends are known.
  const range = failure.short_by_bytes === null && failure.short_by_low_bytes !== null && failure.short_by_high_bytes !== null
    ? [el("dt", {}, "short by"), el("dd", {}, `${bytes(failure.short_by_low_bytes)} to ${bytes(failure.short_by_high_bytes)}`)] : [];
  const out = el("article", { class: "finding" },
    el("h3", {}, count > 1 ? `${at + 1}. ` : "", capital(failure.headline)),
    failure.op ? el("p", {}, `Requested by ${failure.op}${failure.shape ? " for " + failure.shape : ""}.`) : null,
    ...failure.advice.map((advice) => el("div", { class: "fix" }, el("p", {}, el("b", {}, "Fix "), advice.text), copyButton(advice.text, "the advice"))),
    el("dl", { class: "figures" }, ...figures.filter(([, amount]) => amount !== null).flatMap(([name, amount]) => [el("dt", {}, name), el("dd", {}, size(amount))]), ...range));
  if (failure.regions.length > 0) out.append(...regionsView(failure));
  if (failure.holders.length > 0) {
    out.append(el("details", {}, el("summary", {}, "Blocks in use at the failure"), table([
      { title: "bytes", number: true, value: (row) => row.bytes, show: (row) => size(row.bytes) },
      { title: "blocks", number: true, value: (row) => row.count, show: (row) => whole(row.count) },
      { title: "size of each", number: true, value: (row) => row.chunk_bytes, show: (row) => size(row.chunk_bytes) },
      { title: "op", wide: true, value: (row) => row.op || "–" },
    ], failure.holders, { caption: "Blocks in use at the failure" })));
  }
  return out;
}

export function postmortem(data: Data): HTMLElement | null {
  const count = data.failures.length;
  if (count === 0) return null;
  const out = section("oom", "Why memory ran out");
  const shown = data.failures.slice(0, 10);
  out.append(...shown.map((failure, at) => failureView(failure, at, count)));
  if (count > shown.length) out.append(el("p", { class: "note" }, `${plural(count - shown.length, "more failure")}: `, el("code", {}, "vramline oom"), " lists all of them."));
  return out;
}
