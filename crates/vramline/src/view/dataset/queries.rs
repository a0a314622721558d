//! The questions that come with a dataset, as files of SQL. Each file begins with its question as a comment. They use only what DuckDB and
//! Spark have in common, so both give the same rows.

/// A file of SQL.
#[derive(Clone, Copy, Debug)]
pub struct DatasetQuery {
    /// Its name without the ending.
    pub name: &'static str,
    /// Its text.
    pub sql: &'static str,
}

impl DatasetQuery {
    /// The question: the first line.
    #[must_use]
    pub fn title(&self) -> &'static str {
        self.sql.lines().next().unwrap_or_default().trim_start_matches('-').trim()
    }
}

macro_rules! queries {
    ($($name:literal),+ $(,)?) => {
        [$(DatasetQuery { name: $name, sql: include_str!(concat!("queries/", $name, ".sql")) }),+]
    };
}

/// The views that questions use, as statements that end with a semicolon.
pub const VIEWS: DatasetQuery = DatasetQuery { name: "views", sql: include_str!("queries/views.sql") };

/// The questions. Each is one statement.
pub const QUERIES: [DatasetQuery; 12] = queries![
    "waste",
    "peaks_by_commit",
    "out_of_memory",
    "regressions",
    "larger_batch",
    "nearest_limit",
    "holders",
    "growth",
    "fragmentation",
    "step_slope",
    "outside_the_pool",
    "versions",
];
