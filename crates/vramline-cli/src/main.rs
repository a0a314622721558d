//! x
fn main() {
    let t = std::time::Instant::now();
    let s = vramline::source::read(std::path::Path::new(&std::env::args().nth(1).unwrap())).unwrap();
    eprintln!("read {:?}", t.elapsed());
    let r = vramline::view::report::report(s, &Default::default());
    eprintln!("report {:?}", t.elapsed());
    println!("{}", serde_json::to_string_pretty(&r).unwrap());
    eprintln!("json {:?}", t.elapsed());
}
