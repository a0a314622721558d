// The report page. Everything it shows is in the data block of the page; from disk it needs no network, from `vramline serve` it
// connects to its own server only.

import { Data, Picture, Pool, Raw, closer, placeOf, unpack } from "./data";
import { Clock } from "./clock";
import { bytes, el } from "./dom";
import { findings, job, numbers, parts, postmortem } from "./answer";
import { ranks } from "./ranks";
import { notes, steps, tables, wholeRun } from "./sections";
import { ledger } from "./ledger";
import { map } from "./map";
import { columnAt, heldAtPeak, timeline } from "./timeline";
import { Document, Server, Standing } from "./server";
import { remember } from "./remember";
import { glossary, missing, plural } from "./words";

let data: Data;
let server: Server | null = null;
let page: HTMLElement;
let verdict: HTMLElement | null = null;
let pool: Pool | undefined;
let clock: Clock | null = null;

// What somebody looked at, when the page is drawn again with more.
interface Look { from: number; to: number; chosen: number | null }

function show(look: Look | null) {
  const picture = data.pictures.find((one) => one.pool === pool);
  const all: (HTMLElement | null)[] = [postmortem(data), ranks(data), findings(data.report), chooser()];
  if (pool) all.push(numbers(data.report, pool), parts(pool), ledger(data.report, pool));
  else if (data.failures.length === 0) all.push(missing("Nothing in this file shows memory. Record a run with {run}."));
  clock = null;
  if (picture) {
    clock = new Clock(picture);
    if (look) { clock.from = Math.max(look.from, picture.begin); clock.to = Math.min(Math.max(look.to, clock.from + 1), picture.end); }
    all.push(timeline(data, picture, clock, server, look?.chosen ?? null), map(data, picture, clock), wholeRun(picture));
    if (server) approach(server, picture, clock);
    // For those who measure how smoothly it pans.
    (window as unknown as { vramline: unknown }).vramline = { clock, picture };
  } else if (pool) all.push(heldAtPeak(pool));
  if (pool) all.push(steps(data.report, pool), tables(data.report, pool));
  if (pool) all.push(glossary());
  all.push(notes(data));
  page.replaceChildren(...all.filter((part): part is HTMLElement => part !== null));
}

function chooser(): HTMLElement | null {
  if (data.report.pools.length < 2) return null;
  const select = el("select", { id: "pool" }, ...data.report.pools.map((one, at) => el("option", { value: String(at), selected: one === pool },
    [one.name, one.pid === null ? "" : `process ${one.pid}`, one.peak_bytes === null ? "" : bytes(one.peak_bytes)].filter(Boolean).join(" · "))));
  select.addEventListener("change", () => {
    pool = data.report.pools[Number(select.value)];
    show(null);
    document.getElementById("pool")?.focus();
  });
  return el("p", { class: "chooser" }, el("label", { for: "pool" }, "Pool "), select);
}

// Asks for the window exactly, where the page itself has only sums of it.
function approach(server: Server, picture: Picture, clock: Clock) {
  const base = { ...picture };
  let asked = 0;
  const isSummed = picture.each > 1 || (picture.blocks?.leftOut ?? 0) > 0;
  clock.rest = () => {
    if (!isSummed) return;
    const near = picture.near, span = clock.to - clock.from;
    const width = Math.min(8192, Math.max(256, page.clientWidth * (window.devicePixelRatio || 1)));
    const columns = placeOf(base.time, clock.to) - placeOf(base.time, clock.from);
    const isEnough = near && near.from <= clock.from && near.to >= clock.to && (near.isExact || (near.to - near.from) / near.width <= (1.5 * span) / width);
    // Of the whole, the page has more columns than the screen.
    if (isEnough || (columns > 2 * width && span > (base.end - base.begin) / 4)) return;
    const mine = ++asked;
    // With room to both sides, so that a small pan needs nothing new.
    void server.tile(picture.place, Math.max(base.begin, clock.from - span / 2), Math.min(base.end, clock.to + span / 2), 2 * width).then((tile) => {
      if (!tile || mine !== asked) return;
      const chosen = clock.chosen >= 0 ? picture.high[clock.chosen]! : null;
      const [closeColumns, told] = closer(base, tile, 2 * width, base.blocks?.base ?? "0x0");
      Object.assign(picture, closeColumns);
      picture.near = told;
      if (chosen !== null) clock.chosen = columnAt(picture, chosen);
      clock.redraw();
    });
  };
}

// A run that goes on: drawn again when there is more, with everything where it was.
function grow(document: Document) {
  const old = pool;
  data = unpack(document.data as Raw);
  pool = data.report.pools.find((one) => old && one.name === old.name && one.pid === old.pid) ?? data.report.pools[0];
  const isSame = old !== undefined && pool !== undefined && pool.name === old.name;
  const look = clock && isSame && (!clock.isWhole || clock.isOwnChoice) ? {
    from: clock.isWhole ? -Infinity : clock.from, to: clock.isWhole ? Infinity : clock.to,
    chosen: clock.isOwnChoice && clock.chosen >= 0 ? clock.picture.high[clock.chosen]! : null,
  } : null;
  const restore = remember(page);
  verdict?.replaceChildren(...document.verdict.map((line) => el("p", {}, line)));
  show(look);
  restore();
  if (clock && look && !clock.isWhole) clock.rest();
}

function follow(server: Server) {
  const line = el("p", { id: "live", role: "status" });
  line.hidden = true;
  verdict?.before(line);
  let latest: Document | null = null, timer = 0, standing: Standing = "whole", next = 0;
  const say = () => {
    const count = data.report.steps.length;
    const texts: Record<Standing, string> = {
      whole: "", going: `The run is still going${count ? `: ${plural(count, "step")} so far` : ""}. This page updates by itself.`,
      ended: "The run has ended. This page shows all of it.",
      gone: "The recording was deleted or moved. This page shows what was read before that.",
      lost: "The server does not answer; it may have stopped. This page shows the last state.",
    };
    line.hidden = texts[standing] === "";
    line.dataset["standing"] = standing;
    if (line.textContent !== texts[standing]) line.textContent = texts[standing];
  };
  // Not while somebody drags, and so seldom that drawing is a tenth of the time at most.
  const draw = () => {
    clearTimeout(timer);
    if (!latest) return;
    const now = performance.now();
    if (clock?.isMoving || now < next) { timer = window.setTimeout(draw, Math.max(150, next - now)); return; }
    const document = latest;
    latest = null;
    grow(document);
    next = performance.now() + 10 * (performance.now() - now);
    say();
  };
  server.listen((document) => { latest = document; draw(); }, (now) => { standing = now; say(); });
}

// Begins; `version` is that of the server's data, 0 from disk.
export function report(raw: Raw, version: number, into: HTMLElement) {
  page = into;
  verdict = document.getElementById("verdict");
  data = unpack(raw);
  pool = data.report.pools[0];
  const ran = job(data.report);
  if (ran) document.querySelector("header")?.append(ran);
  const lines = [...(verdict?.children ?? [])].map((line) => line.textContent ?? "");
  server = version > 0 ? new Server(version, { verdict: lines, data: raw }) : null;
  show(null);
  if (server) follow(server);
}
