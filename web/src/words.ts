// The words of the page: names of parts as people read them, plurals, and the glossary.

import type { LedgerLine, LineKind } from "./data";
import { el, section, whole } from "./dom";

// JSON has words of its own, which stay; people read these.
const PART_NAMES: Record<string, string> = { slack: "rounding", before: "before the recording" };
export const partName = (part: string) => PART_NAMES[part] ?? part;

const LINE_NAMES: Partial<Record<LineKind, string>> = {
  "driver reserved": "reserved by the driver", unattributed: "not attributed to a process", "context at start": "context", "cached free": "cached",
  "context, cached and outside": "context, cached and outside the pool", "context, pool and outside": "context, pool and outside the pool",
  "cached and the program's own": "cached, and the program itself", "pool and the program's own": "pool, and the program itself",
  "first launches": "local memory and code at first launches", "library memory": "memory of libraries", "program memory": "memory of the program's own CUDA calls",
  "driver pool": "pool of the driver", "pinned memory": "for pinned host memory", "copies and synchronization": "first copies and synchronizations",
  "page rounding": "rounding to pages of the driver", slack: "rounding", "pool not resident": "reserved, but never touched", "the program's own": "the program itself",
};
export function lineName(line: LedgerLine): string {
  const { detail } = line;
  if (line.line === "this job" || line.line === "other process") return detail.startsWith("process") ? (line.line === "this job" ? detail : `other ${detail}`) : [line.line, detail].join(" ").trim();
  const name = LINE_NAMES[line.line] ?? line.line;
  return !detail ? name : line.line === "pool" ? `${name} ${detail}` : `${name}: ${detail}`;
}

export const plural = (count: number, one: string, many = one + "s") => `${whole(count)} ${count === 1 ? one : many}`;

// Names and commands keep their letters.
export const capital = (text: string) => (/^(?!vramline )[a-z']+([ ,;]|: )/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text);
export const sentence = (text: string) => capital(text) + (/[.!?]$/.test(text) ? "" : ".");

const GLOSSARY: [string, string][] = [
  ["in use", "Blocks that the framework allocated and has not freed, rounding included."],
  ["requested", "Bytes that the program requested: in use without rounding."],
  ["rounding", "Bytes that the allocator handed out beyond the request, because its blocks have certain sizes."],
  ["reserved", "Memory that the framework's pool took from the driver: in use plus cached."],
  ["cached", "Memory that the pool reserved and that is not in use. The framework can use it again; other processes cannot."],
  ["context", "Memory that the driver takes for each process on a GPU: the CUDA context, kernels, libraries. It is outside the pool."],
  ["peak", "The highest number of bytes in use in the trace or recording that this page shows."],
  ["peak of the process", "The highest number of bytes in use since the process started. It can be higher than the peak of the traced steps."],
  ["fragmentation", "Free memory in blocks that are too small for the next request. Enough can be free in total and the request still fails."],
  ["headroom", "Bytes between the peak and the limit."],
  ["before the recording", "Blocks that were allocated before the recording started. Their total size is known; what they hold is not."],
  ["unknown", "Bytes in use for which no op, call stack or variable shows a role."],
  ["state", "Memory that the program keeps across steps and that is not a parameter, gradient, optimizer state or input."],
  ["temporaries", "Memory that one op or one compiled program needs while it runs."],
  ["exact replay", "Vramline ran the recorded requests through the same allocator, and every address came out the same. So the pool's size is known at each moment."],
  ["counter readings", "Values of the framework's own counters, read a few times a second. A peak between two readings is not visible."],
];
const TERMS = new Map(GLOSSARY);
const idOf = (word: string) => "word-" + word.replace(/ /g, "-");

function link(id: string, tip: string | null, text: string): HTMLElement {
  const made = el("a", { class: "term", href: "#" + id, title: tip }, text);
  // A link does not open what it leads into.
  made.addEventListener("click", () => { const box = document.getElementById(id)?.closest("details"); if (box) box.open = true; });
  return made;
}

// A word with its meaning as a tip, which leads to the glossary. Words without an entry stay as they are.
export function term(word: string, text = word): HTMLElement | string {
  const meaning = TERMS.get(word);
  return meaning ? link(idOf(word), meaning, text) : text;
}

export function ask(): HTMLElement {
  return el("p", { class: "hint ask" }, link("glossary", null, "What do rounding, cached, reserved and the other words mean?"));
}

export function glossary(): HTMLElement {
  const out = section("words", "Words");
  out.append(el("details", { id: "glossary" }, el("summary", {}, `What ${whole(GLOSSARY.length)} words of this page mean`), el("dl", { class: "words" }, ...GLOSSARY.map(([word, meaning]) =>
    el("div", { id: idOf(word), tabindex: "-1" }, el("dt", {}, word), el("dd", {}, meaning))))));
  return out;
}

const COMMAND = "vramline run -- python train.py";
// What is missing, and what to record to see it.
export function missing(what: string, ...after: (Node | string)[]): HTMLElement {
  const [before, rest] = what.split("{run}");
  return el("p", { class: "missing" }, before ?? "", rest === undefined ? null : el("code", {}, COMMAND), rest ?? "", ...after);
}
