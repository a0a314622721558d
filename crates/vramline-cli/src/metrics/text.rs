//! Prometheus' text format, and OpenMetrics. What the series mean is not known here.

use std::fmt::{Display, Write};

use super::family::{FAMILIES, Kind, Metric};

/// The most series of one answer. A GPU machine has a few hundred.
const MAX_SERIES: usize = 20_000;
/// The longest value of a label, in characters.
const LONGEST_LABEL: usize = 200;

/// The formats that Prometheus reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Version 0.0.4, which every reader knows.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an Accept header prefers. OpenMetrics only for those who ask for version 1.0.0.
    pub(crate) fn accepted(header: Option<&str>) -> Format {
        let (mut text, mut open_metrics) = (0.0, 0.0);
        for range in header.unwrap_or("*/*").split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0_f32, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if version == Some("1.0.0") => {
                    open_metrics = quality.max(open_metrics);
                }
                "text/plain" if version.is_none_or(|version| version == "0.0.4") => text = quality.max(text),
                "text/*" | "*/*" => text = quality.max(text),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Format::OpenMetrics } else { Format::Text }
    }
}

/// The series of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// The lines of each metric, in the order of [`FAMILIES`].
    lines: Vec<String>,
    count: usize,
    pub(crate) left_out: u64,
}

impl Series {
    pub(crate) fn new() -> Series {
        Series { lines: vec![String::new(); FAMILIES.len()], count: 0, left_out: 0 }
    }

    /// Adds a series. The values of the labels are in the order of their declaration; a label without a value is left out.
    pub(crate) fn add(&mut self, metric: Metric, labels: &[&str], value: impl Display) {
        let family = metric.family();
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        // How many are left out must not be left out.
        if self.count >= MAX_SERIES && metric != Metric::LeftOut {
            self.left_out += 1;
            return;
        }
        self.count += 1;
        let Some(lines) = self.lines.get_mut(metric as usize) else { return };
        lines.push_str(family.name);
        let mut before = '{';
        for (name, value) in family.labels.iter().zip(labels).filter(|(_, value)| !value.is_empty()) {
            lines.push(before);
            before = ',';
            lines.push_str(name);
            lines.push_str("=\"");
            for character in value.chars().take(LONGEST_LABEL) {
                match character {
                    '\\' => lines.push_str("\\\\"),
                    '"' => lines.push_str("\\\""),
                    '\n' => lines.push_str("\\n"),
                    other => lines.push(other),
                }
            }
            lines.push('"');
        }
        if before == ',' {
            lines.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(lines, " {value}");
    }

    /// Adds a series, if its value is known. An unknown figure has no series.
    pub(crate) fn add_known(&mut self, metric: Metric, labels: &[&str], value: Option<impl Display>) {
        if let Some(value) = value {
            self.add(metric, labels, value);
        }
    }

    pub(crate) fn text(&self, format: Format) -> String {
        let length: usize = self.lines.iter().map(String::len).sum();
        let mut text = String::with_capacity(length + 256 * FAMILIES.len());
        for (family, lines) in FAMILIES.iter().zip(&self.lines).filter(|(_, lines)| !lines.is_empty()) {
            // OpenMetrics names a metric without the ending that its type demands.
            let (name, kind) = match (format, family.kind) {
                (_, Kind::Gauge) => (family.name, "gauge"),
                (Format::Text, Kind::Counter) => (family.name, "counter"),
                (Format::Text, Kind::Info) => (family.name, "gauge"),
                (Format::OpenMetrics, Kind::Counter) => {
                    (family.name.strip_suffix("_total").unwrap_or(family.name), "counter")
                }
                (Format::OpenMetrics, Kind::Info) => {
                    (family.name.strip_suffix("_info").unwrap_or(family.name), "info")
                }
            };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
            if let (Format::OpenMetrics, Some(unit)) = (format, family.unit) {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            text.push_str(lines);
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_is_asked_for() {
        // As Prometheus 2.42 and 3.5 ask.
        let older = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for header in [older, newer, "application/openmetrics-text; version=\"1.0.0\""] {
            assert_eq!(Format::accepted(Some(header)), Format::OpenMetrics, "{header}");
        }
        let plain = [
            "text/plain",
            "*/*",
            "",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;version=1.0.0;q=0",
            "application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.9",
            "application/openmetrics-text;version=1.0.0;q=nan,;;;=,",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
        ];
        for header in plain {
            assert_eq!(Format::accepted(Some(header)), Format::Text, "{header}");
        }
        assert_eq!(Format::accepted(None), Format::Text);
    }

    #[test]
    fn labels_are_escaped_and_cut() {
        let mut series = Series::new();
        series.add(Metric::JobRunning, &["a\\b\"c\nd\u{1b}ü", ""], 1);
        series.add(Metric::JobRunning, &["x".repeat(5000).as_str(), "j"], 0);
        let text = series.text(Format::Text);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[0], "vramline_job_running{host=\"a\\\\b\\\"c\\nd\u{1b}ü\"} 1");
        assert_eq!(lines[1], format!("vramline_job_running{{host=\"{}\",job=\"j\"}} 0", "x".repeat(200)));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn openmetrics_has_its_own_names_units_and_end() {
        let mut series = Series::new();
        series.add(Metric::Steps, &["h", "j", "0"], 12);
        series.add(Metric::Build, &["1"], 1);
        series.add(Metric::GpuLimit, &["h", "GPU 0"], 5);
        let text = series.text(Format::OpenMetrics);
        for line in [
            "# TYPE vramline_steps counter",
            "vramline_steps_total{host=\"h\",job=\"j\",rank=\"0\"} 12",
            "# TYPE vramline_exporter_build info",
            "vramline_exporter_build_info{version=\"1\"} 1",
            "# UNIT hw_gpu_memory_limit_bytes bytes",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("} 1\n# EOF\n"));
        assert!(!series.text(Format::Text).contains("# EOF"));
    }

    #[test]
    fn there_are_never_more_than_a_reader_can_take() {
        let mut series = Series::new();
        for number in 0..MAX_SERIES + 7 {
            series.add(Metric::JobRunning, &["h", &number.to_string()], 1);
        }
        assert_eq!((series.count, series.left_out), (MAX_SERIES, 7));
        series.add(Metric::LeftOut, &["h"], series.left_out);
        assert!(series.text(Format::Text).contains("series_left_out{host=\"h\"} 7\n"));
    }

    #[test]
    fn declarations_follow_the_rules_of_prometheus() {
        for family in FAMILIES {
            let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(is_name(family.name) && family.labels.iter().all(|label| is_name(label)), "{family:?}");
            assert!(family.help.ends_with('.') && !family.help.contains(['\\', '"', '\n']), "{family:?}");
            assert!(family.unit.is_none_or(|unit| family.name.ends_with(&format!("_{unit}"))), "{family:?}");
            assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{family:?}");
            assert_eq!(family.name.ends_with("_info"), family.kind == Kind::Info, "{family:?}");
            assert!(!family.labels.contains(&"pid") && !family.labels.contains(&"step"), "{family:?}");
            let names = FAMILIES.iter().filter(|other| other.name == family.name);
            assert_eq!(names.count(), 1, "{family:?}");
        }
    }
}
