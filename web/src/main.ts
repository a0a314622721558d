// The report page. Everything it shows is in the data block of the page; it asks nobody for anything.

import { unpack, Picture, Pool } from "./data";
import { Clock } from "./clock";
import { bytes, el } from "./dom";
import { findings, notes, numbers, postmortem, steps, tables } from "./sections";
import { ledger } from "./ledger";
import { map } from "./map";
import { timeline } from "./timeline";

const data = unpack(document.getElementById("data")?.textContent ?? "");
const page = document.getElementById("page");

function show(pool: Pool | undefined, picture: Picture | undefined) {
  if (!page) return;
  const parts: (HTMLElement | null)[] = [chooser];
  if (pool) parts.push(numbers(data.report, pool), postmortem(data), ledger(data.report, pool));
  if (picture) {
    const clock = new Clock(picture);
    parts.push(timeline(data, picture, clock), map(data, picture, clock));
    // For those who measure how smoothly it pans.
    (window as unknown as { vramline: unknown }).vramline = { clock, picture };
  }
  if (pool) parts.push(steps(data.report, pool), findings(data.report), tables(data.report, pool));
  else parts.push(postmortem(data), findings(data.report));
  parts.push(notes(data));
  page.replaceChildren(...parts.filter((part): part is HTMLElement => part !== null));
}

const pictureOf = (pool: Pool | undefined) => data.pictures.find((picture) => picture.pool === pool);
let chooser: HTMLElement | null = null;
if (data.report.pools.length > 1) {
  const select = el("select", { id: "pool" }, ...data.report.pools.map((pool, at) => el("option", { value: String(at) },
    [pool.name, pool.pid === null ? "" : `process ${pool.pid}`, pool.peak_bytes === null ? "" : bytes(pool.peak_bytes)].filter(Boolean).join(" · "))));
  select.addEventListener("change", () => {
    const pool = data.report.pools[Number(select.value)];
    show(pool, pictureOf(pool));
    select.focus();
  });
  chooser = el("p", { class: "chooser" }, el("label", { for: "pool" }, "Pool "), select);
}
const first = data.report.pools[0];
show(first, pictureOf(first));
