// Makes one script, one style sheet, and the hashes that the page's policy names. They go below the crate of the binary, which holds
// them: cargo packages nothing from outside a crate. The same input gives the same bytes.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../crates/vramline-cli/web");
mkdirSync(out, { recursive: true });
const common = { bundle: true, minify: true, write: false, charset: "ascii", legalComments: "none", absWorkingDir: here };
const script = buildSync({ ...common, entryPoints: ["src/main.ts"], format: "iife", target: "es2020" });
const style = buildSync({ ...common, entryPoints: ["src/style.css"], target: ["chrome100", "firefox100", "safari15"] });
const text = (built) => built.outputFiles[0].text.trim();
// Inside a page, what ends a script or a style ends it wherever it stands.
for (const [name, content] of [["script", text(script)], ["style", text(style)]]) {
  if (content.toLowerCase().includes("</" + name) || content.includes("<!--")) throw new Error(`${name} would end early`);
}
const hash = (content) => "sha256-" + createHash("sha256").update(content).digest("base64");
writeFileSync(join(out, "page.js"), text(script));
writeFileSync(join(out, "page.css"), text(style));
writeFileSync(join(out, "hashes.txt"), `${hash(text(script))}\n${hash(text(style))}\n`);
console.log(`page.js ${text(script).length} bytes, page.css ${text(style).length} bytes`);
