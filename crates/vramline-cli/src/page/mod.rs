//! The report as one page: data, style and script in one file that needs no network.
//!
//! The script and the style come from `web/`, built by `make web` and kept in the repository, so that building needs no Node.
//! The page's content security policy names their hashes, so nothing else in it runs, even if a name in a trace holds a script. A page
//! from `vramline serve` may connect to its own server only.

pub(crate) mod plan;

use std::path::Path;

const SCRIPT: &str = include_str!("../../web/page.js");
const STYLE: &str = include_str!("../../web/page.css");
/// The hashes of both, as a policy names them; made with them.
const HASHES: &str = include_str!("../../web/hashes.txt");

/// The state of the server that a page comes from.
pub(crate) struct Served {
    pub(crate) version: u64,
    pub(crate) standing: &'static str,
}

/// The content security policy of a page.
pub(crate) fn policy(is_served: bool) -> String {
    let mut hashes = HASHES.lines();
    let (script, style) = (hashes.next().unwrap_or_default(), hashes.next().unwrap_or_default());
    let connect = if is_served { "connect-src 'self'; " } else { "" };
    format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; {connect}base-uri 'none'; form-action 'none'"
    )
}

/// The page of `path`, with `data` as JSON without `<`.
pub(crate) fn page(path: &Path, verdict: &[String], data: &str, served: Option<&Served>) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = escaped(&name);
    let verdict: String = verdict.iter().map(|line| format!("<p>{}</p>", escaped(line))).collect();
    let told = served.map_or(String::new(), |served| {
        format!(" data-version=\"{}\" data-standing=\"{}\"", served.version, served.standing)
    });
    let content = format!(
        "<section id=\"verdict\" aria-label=\"Verdict\">{verdict}</section>\n\
         <main id=\"page\"><noscript><p>The charts and tables of this page need JavaScript.</p></noscript></main>\n\
         <script type=\"application/json\" id=\"data\"{told}>{data}</script>",
    );
    whole(&name, &policy(served.is_some()), &content)
}

/// The page of a comparison, with `data` as JSON without `<`.
pub(crate) fn comparison(runs: &[String], verdict: &[String], data: &str) -> String {
    let verdict: String = verdict.iter().map(|line| format!("<p>{}</p>", escaped(line))).collect();
    let content = format!(
        "<section id=\"verdict\" aria-label=\"Verdict\">{verdict}</section>\n\
         <main id=\"page\"><noscript><p>The charts and tables of this page need JavaScript.</p></noscript></main>\n\
         <script type=\"application/json\" id=\"data\" data-kind=\"diff\">{data}</script>",
    );
    whole(&escaped(&runs.join(" · ")), &policy(false), &content)
}

/// A page without a script. `content` is escaped.
pub(crate) fn static_page(name: &str, content: &str) -> String {
    let style = HASHES.lines().nth(1).unwrap_or_default();
    let policy = format!("default-src 'none'; style-src '{style}'; base-uri 'none'; form-action 'none'");
    around(&escaped(name), &policy, content, "")
}

/// Everything around the content, with the script; `name` is escaped.
fn whole(name: &str, policy: &str, content: &str) -> String {
    around(name, policy, content, &format!("<script>{SCRIPT}</script>\n"))
}

fn around(name: &str, policy: &str, content: &str, script: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"vramline {version}\">\n\
         <title>{name} · Vramline</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header><p class=\"brand\">Vramline</p><h1>{name}</h1></header>\n\
         {content}\n{script}</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
