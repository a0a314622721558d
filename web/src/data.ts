// The page's data as Rust wrote it (crates/vramline/src/view/page.rs), unpacked.

import type { FailureView, HeldView, LedgerView, PoolView, RankView, RanksView, Report, Row, StepView } from "./documents";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

// What the page takes of a row; those of kept moments have no more.
export type HeldRow = Pick<
  Row, "bytes" | "count" | "op" | "layer" | "role" | "shape" | "dtype" | "source" | "variable" | "evidence" | "age_ns"
>;
export type Held = HeldView;
export type Pool = PoolView;
export type Step = StepView;
export type LedgerLine = LedgerView;
export type LineKind = LedgerLine["line"];
export type Failure = FailureView;
export type Ranks = RanksView;
export type Rank = RankView;
export type { Report };
interface RawMoment {
  time_ns: number | null; in_use_bytes: number; slack_bytes: number; before_recording_bytes: number;
  rows: (number | null)[][]; rest_rows: number; rest_bytes: number;
}
interface RawMap { allocations: number; blocks: number; is_whole: boolean; base: string; data: string; left_out: number; left_out_most_bytes: number }
interface RawLine { name: string; points: number; data: string }
// A window as the server sends it (crates/vramline/src/view/tile.rs), and a moment.
export interface RawTile {
  pool: number; from_ns: number; to_ns: number; events: number; is_exact: boolean; columns: number; data: string;
  map: RawMap | null; lines: RawLine[]; strings: string[];
}
export interface RawHeld { roles: string[]; moment: RawMoment; strings: string[] }
// Knows the rows of moments that the page does not have.
export interface MomentSource { held(pool: number, at: number, amount: number): Promise<RawHeld | null> }
interface RawPicture {
  pool: number; by: "trace" | "counters"; events: number; each: number; columns: number; end_ns: number; data: string;
  moments: RawMoment[];
  map: RawMap | null; lines: RawLine[]; run: RawLine | null; notes: string[];
}
interface RawGrid { by: "number" | "order"; width: number; figure: "peak" | "current"; columns: number; rows: number; not_matched: number; data: string }
export interface Raw {
  report: Report; oom: null | { failures: Failure[] }; roles: string[]; pools: RawPicture[]; strings: string[]; aggregated: string[];
  grid: RawGrid | null;
}

export interface Moment {
  time: number | null; inUse: number; slack: number; before: number; rows: HeldRow[]; restRows: number; restBytes: number;
}
export interface Blocks {
  count: number; allocations: number; isWhole: boolean; base: string; leftOut: number; leftOutMost: number;
  address: Float64Array; chunk: Float64Array; slack: Float64Array; born: Float64Array; life: Float64Array;
  role: Float64Array; op: Float64Array; shape: Float64Array; bornAt: Float64Array; freedAt: Float64Array;
}
export interface Line { name: string; time: Float64Array; value: Float64Array }
export interface Columns {
  count: number; time: Float64Array; high: Float64Array; least: Float64Array; last: Float64Array; parts: Float64Array[]; total: Float64Array;
}
export interface Picture extends Columns {
  pool: Pool; place: number; by: "trace" | "counters"; events: number; each: number; begin: number; end: number;
  moments: Moment[]; blocks: Blocks | null; lines: Line[]; run: Line | null; notes: string[];
  // What the server sent of a window; the columns above have it already.
  near: Near | null;
}
export interface Near { from: number; to: number; width: number; isExact: boolean; blocks: Blocks | null; lines: Line[]; strings: string[] }

// What a block is for, in the order in which roles are shown.
export type Role = keyof Held["by_role"];
export const ROLES: Role[] = ["parameters", "gradients", "optimizer", "activations", "inputs", "state", "temporaries", "unknown"];
// The parts of a column, in the order in which they are stacked.
export const PARTS: string[] = [...ROLES, "slack", "before"];

// Differences from one number to the next, seven bits a byte, the sign in the lowest; sums are exact up to 2^53.
class Unpacker {
  private at = 0;
  private bytes: Uint8Array;
  constructor(text: string) {
    const raw = atob(text);
    this.bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) this.bytes[i] = raw.charCodeAt(i);
  }
  column(count: number): Float64Array {
    const out = new Float64Array(count);
    let value = 0;
    for (let i = 0; i < count; i++) {
      let left = 0, scale = 1, byte = 0;
      do {
        byte = this.bytes[this.at++] ?? 0;
        left += (byte & 0x7f) * scale;
        scale *= 128;
      } while (byte & 0x80);
      value += left % 2 === 0 ? left / 2 : -(left + 1) / 2;
      out[i] = value;
    }
    return out;
  }
}

// Memory of each rank by step; what is unknown is -1.
export interface Grid { by: "number" | "order"; width: number; figure: "peak" | "current"; notMatched: number; steps: Float64Array; rows: Float64Array[] }
export interface Data { report: Report; failures: Failure[]; pictures: Picture[]; strings: string[]; aggregated: string[]; grid: Grid | null }

function gridOf(grid: RawGrid): Grid {
  const packed = new Unpacker(grid.data), steps = packed.column(grid.columns);
  const rows = Array.from({ length: grid.rows }, () => packed.column(grid.columns).map((cell) => cell - 1));
  return { by: grid.by, width: grid.width, figure: grid.figure, notMatched: grid.not_matched, steps, rows };
}

function columnsOf(text: string, n: number): Columns {
  const data = new Unpacker(text);
  const [time, since, least, last] = [data.column(n), data.column(n), data.column(n), data.column(n)];
  const parts = PARTS.map(() => data.column(n));
  const total = new Float64Array(n), high = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    high[i] = time[i]! + since[i]!;
    for (const part of parts) total[i]! += part[i]!;
  }
  return { count: n, time, high, least, last, parts, total };
}

function blocksOf(map: RawMap | null): Blocks | null {
  if (!map || map.blocks === 0) return null;
  const packed = new Unpacker(map.data), m = map.blocks;
  const column = () => packed.column(m);
  return {
    count: m, allocations: map.allocations, isWhole: map.is_whole, base: map.base, leftOut: map.left_out, leftOutMost: map.left_out_most_bytes,
    address: column(), chunk: column(), slack: column(), born: column(), life: column(), role: column(), op: column(), shape: column(),
    bornAt: map.is_whole ? column() : new Float64Array(0), freedAt: map.is_whole ? column() : new Float64Array(0),
  };
}

function lineOf(line: RawLine): Line {
  const packed = new Unpacker(line.data);
  return { name: line.name, time: packed.column(line.points), value: packed.column(line.points) };
}

export function momentOf(from: RawMoment, roles: string[], strings: string[]): Moment {
  const name = (at: number | null | undefined) => strings[at ?? 0] ?? "";
  return {
    time: from.time_ns, inUse: from.in_use_bytes, slack: from.slack_bytes, before: from.before_recording_bytes,
    restRows: from.rest_rows, restBytes: from.rest_bytes,
    rows: from.rows.map((row) => ({
      bytes: row[0] ?? 0, count: row[1] ?? 0, role: roles[row[2] ?? 6] ?? "unknown", op: name(row[3]), layer: name(row[4]),
      shape: name(row[5]), dtype: name(row[6]), source: name(row[7]), variable: name(row[8]), evidence: name(row[9]), age_ns: row[10] ?? null,
    })),
  };
}

// The moment of a report, which may be of no time.
export function momentAt(held: Held): Moment {
  return {
    time: held.time_ns, inUse: held.in_use_bytes, slack: held.slack_bytes, before: held.before_recording_bytes, rows: held.rows,
    restRows: held.rest?.rows ?? 0, restBytes: held.rest?.bytes ?? 0,
  };
}

// "at the peak" is said only where a history knows the peak.
export function whenHeld(pool: Pool, atPeak: string): string {
  return { peak: atPeak, dump: "at the moment of the dump", program: "as compiled", failure: "at the failed allocation" }[pool.moment];
}

export function unpack(raw: Raw): Data {
  const pictures: Picture[] = [];
  for (const from of raw.pools) {
    const pool = raw.report.pools[from.pool];
    if (!pool || from.columns === 0) continue;
    const columns = columnsOf(from.data, from.columns);
    const begin = columns.time[0] ?? 0;
    pictures.push({
      ...columns, pool, place: from.pool, by: from.by, events: from.events, each: from.each, begin, end: Math.max(from.end_ns, begin + 1),
      moments: from.moments.map((moment) => momentOf(moment, raw.roles, raw.strings)), blocks: blocksOf(from.map), lines: from.lines.map(lineOf),
      run: from.run ? lineOf(from.run) : null, notes: from.notes, near: null,
    });
  }
  return { report: raw.report, failures: raw.oom?.failures ?? [], pictures, strings: raw.strings, aggregated: raw.aggregated, grid: raw.grid ? gridOf(raw.grid) : null };
}

// A picture's own columns, with those of a window in their place. A tile begins with what went on from before it.
export function closer(base: Columns, raw: RawTile, width: number, address: string): [Columns, Near] {
  const tile = columnsOf(raw.data, raw.columns);
  let out: Columns = base;
  if (tile.count > 0) {
    let before = placeOf(base.time, tile.time[0]!) + 1;
    while (before > 0 && base.time[before - 1] === tile.time[0]) before--;
    // A column of the page may reach beyond the window: from there on it stands for itself again.
    const over = Math.max(0, placeOf(base.time, raw.to_ns)), after = over + 1;
    const isOver = raw.to_ns + 1 < (base.time[after] ?? Infinity) && after < base.count;
    const join = (of: (columns: Columns) => Float64Array, atOver?: number) => {
      const [first, second, last] = [of(base).subarray(0, before), of(tile), of(base).subarray(after)];
      const joined = new Float64Array(first.length + second.length + (isOver ? 1 : 0) + last.length);
      joined.set(first);
      joined.set(second, first.length);
      if (isOver) joined[first.length + second.length] = atOver ?? of(base)[over]!;
      joined.set(last, joined.length - last.length);
      return joined;
    };
    const time = join((columns) => columns.time, raw.to_ns + 1);
    out = {
      count: time.length, time, high: join((columns) => columns.high), least: join((columns) => columns.least), last: join((columns) => columns.last),
      parts: PARTS.map((_, part) => join((columns) => columns.parts[part]!)), total: join((columns) => columns.total),
    };
  }
  const blocks = blocksOf(raw.map);
  if (blocks) {
    // Addresses from where those of the page are counted.
    const by = Number(BigInt(blocks.base) - BigInt(address));
    blocks.address = blocks.address.map((at) => at + by);
    blocks.base = address;
  }
  return [out, { from: raw.from_ns, to: raw.to_ns, width, isExact: raw.is_exact, blocks, lines: raw.lines.map(lineOf), strings: raw.strings }];
}

// Where in an ascending column a time stands: the last place not after it.
export function placeOf(times: Float64Array, time: number): number {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
}
