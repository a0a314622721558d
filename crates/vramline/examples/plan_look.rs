use std::path::PathBuf;
use vramline::plan::{Plan, Source};
use vramline::units::Bytes;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let targets: Vec<u64> =
        args[0].split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
    let limits: Vec<u64> = args[1].split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
    let probes: Vec<(u64, PathBuf)> = args[2..]
        .iter()
        .map(|a| {
            let (b, p) = a.split_once('=').unwrap();
            (b.parse().unwrap(), p.into())
        })
        .collect();
    let readings: Vec<_> = probes.iter().map(|(b, p)| (*b, vramline::read(p).unwrap())).collect();
    let sources: Vec<Source> = readings
        .iter()
        .map(|(b, r)| {
            let h = &r.hosts[0];
            Source { batch: *b, trace: &h.trace, pool: &h.trace.pools[0], version: h.version.as_deref() }
        })
        .collect();
    let plan = Plan::new(&sources).unwrap();
    let m = |b: Bytes| (b.0 as f64 / 104857.6).round() / 10.0;
    for t in targets {
        let p = plan.predict(t, 4).unwrap();
        println!(
            "batch {t}: peak {} [{} .. {}] pool {:?} exact {:.4} slack {} parts {:?} roles {:?} bases {:?}",
            m(p.peak),
            m(p.low),
            m(p.high),
            p.pool.map(m),
            p.exact_share(),
            m(p.slack),
            p.parts.iter().map(|p| (p.part.word(), p.range.map(m))).collect::<Vec<_>>(),
            p.roles.iter().map(|(r, b)| (r.word(), m(*b))).collect::<Vec<_>>(),
            p.bases.iter().map(|(r, b)| (r.word(), m(*b))).collect::<Vec<_>>()
        );
    }
    for l in limits {
        let started = std::time::Instant::now();
        println!("limit {l}: {:?} in {:?}", plan.largest(Bytes(l << 20)), started.elapsed());
    }
}
