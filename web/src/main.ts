// Both pages: a report, or a comparison of runs.

import { Raw } from "./data";
import { RawDiff, comparison } from "./diff";
import { printable } from "./print";
import { report } from "./report";

const holder = document.getElementById("data"), page = document.getElementById("page");
if (holder && page) {
  const raw: unknown = JSON.parse(holder.textContent ?? "{}");
  if (holder.dataset["kind"] === "diff") comparison(raw as RawDiff, page);
  else report(raw as Raw, Number(holder.dataset["version"] ?? 0), page);
  printable();
}
