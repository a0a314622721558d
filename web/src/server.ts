// The server of `vramline serve`: exact windows, and news of a run that is still going. A page from disk has none.

import { MomentSource, RawHeld, RawTile } from "./data";

export type Standing = "whole" | "going" | "ended" | "gone" | "lost";
interface Whole { version: number; standing: Standing; verdict: string[]; data: unknown }
export interface Document { verdict: string[]; data: unknown }
export type Patch = { v: unknown } | { o: Record<string, Patch> } | { n: number; e: Record<string, Patch>; a: unknown[] };

// The new document, of the old one and of what has changed; crates/vramline-cli/src/serve/patch.rs makes it.
export function apply(old: unknown, patch: Patch): unknown {
  if ("v" in patch) return patch.v;
  if ("o" in patch) {
    const out: Record<string, unknown> = { ...(old as Record<string, unknown>) };
    for (const [key, inner] of Object.entries(patch.o)) out[key] = apply(out[key], inner);
    return out;
  }
  const out = (old as unknown[]).slice(0, patch.n);
  for (const [at, inner] of Object.entries(patch.e)) out[Number(at)] = apply(out[Number(at)], inner);
  return out.concat(patch.a);
}

async function ask<T>(what: string): Promise<T | null> {
  try {
    const answer = await fetch(what, { cache: "no-store", credentials: "omit" });
    return answer.ok ? ((await answer.json()) as T) : null;
  } catch {
    return null;
  }
}

export class Server implements MomentSource {
  constructor(private version: number, private document: Document) {}

  tile(pool: number, from: number, to: number, width: number): Promise<RawTile | null> {
    return ask(`tile?pool=${pool}&from=${Math.floor(from)}&to=${Math.ceil(to)}&width=${Math.round(width)}`);
  }
  held(pool: number, at: number, amount: number): Promise<RawHeld | null> {
    return ask(`held?pool=${pool}&at=${at}&bytes=${amount}`);
  }

  // Reports what is new and the state of the run. When the run ends, fetches everything once more.
  listen(grown: (document: Document) => void, stands: (standing: Standing) => void) {
    let standing: Standing = "whole", isEnded = false;
    const whole = async () => {
      const all = await ask<Whole>("data");
      if (!all) return;
      this.version = all.version;
      this.document = { verdict: all.verdict, data: all.data };
      grown(this.document);
      stand(all.standing);
    };
    const stand = (now: Standing) => {
      standing = now;
      stands(now);
      if (now === "ended" && !isEnded) {
        isEnded = true;
        void whole();
      }
    };
    const source = new EventSource("events");
    const told = (text: string) => JSON.parse(text) as { version: number; from: number; standing: Standing; patch: Patch };
    source.addEventListener("state", (event) => {
      const news = told((event as MessageEvent<string>).data);
      stand(news.standing);
      if (news.version !== this.version && news.standing !== "gone" && news.standing !== "ended") void whole();
    });
    source.addEventListener("grown", (event) => {
      const news = told((event as MessageEvent<string>).data);
      if (news.from === this.version) {
        this.version = news.version;
        this.document = apply(this.document, news.patch) as Document;
        grown(this.document);
        stand(news.standing);
      } else {
        stand(news.standing);
        if (news.standing !== "ended") void whole();
      }
    });
    source.onerror = () => {
      if (standing === "gone") { source.close(); return; }
      stands("lost");
      // A refusal is final for the browser; whoever was only too many may come back.
      if (source.readyState === EventSource.CLOSED) {
        setTimeout(() => { void ask<Whole>("data").then((all) => { if (all) this.listen(grown, stands); }); }, 5000);
      }
    };
  }
}
