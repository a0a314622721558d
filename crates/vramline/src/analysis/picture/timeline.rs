//! The timeline of a pool in columns, each with what was held at its own highest moment.

use std::ops::Range;

use crate::snapshot::Role;
use crate::timeline::{Column, Pyramid};
use crate::trace::{PoolTrace, Trace};

const ROLES: usize = Role::ALL.len();

/// The columns of a timeline. All lists are of the same length.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// When each column begins, in nanoseconds.
    pub begin: Vec<i64>,
    /// How long after that its highest moment is, in nanoseconds.
    pub highest_after: Vec<i64>,
    /// The least bytes in use in it.
    pub least: Vec<u64>,
    /// The bytes in use at its end.
    pub last: Vec<u64>,
    /// Requested at its highest moment, in the order of [`Role::ALL`].
    pub by_role: [Vec<u64>; ROLES],
    /// Rounding at that moment: allocated beyond the requests.
    pub slack: Vec<u64>,
    /// From before the recording at that moment.
    pub before_recording: Vec<u64>,
}

/// Events of a pool that are one column, and the position of the first of its highest.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) events: Range<usize>,
    highest: usize,
}

impl Stretch {
    pub(super) fn of(levels: &Pyramid, events: Range<usize>) -> Option<Stretch> {
        let (highest, _) = levels.highest(events.clone())?;
        Some(Stretch { events, highest })
    }
}

/// Bytes in use after each event of a pool.
pub(super) fn levels_of(trace: &Trace, pool: &PoolTrace) -> Pyramid {
    Pyramid::new(pool.levels(&trace.history.events).map(|(_, level)| level.0).collect())
}

impl Timeline {
    /// How many columns there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.begin.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.begin.is_empty()
    }

    /// A column for each stretch of a pool's events.
    pub(super) fn of_trace(
        trace: &Trace,
        pool: &PoolTrace,
        levels: &Pyramid,
        stretches: &[Stretch],
    ) -> Timeline {
        let clock =
            |position: usize| pool.time(&trace.history.events, position).on_clock(trace.history.origin).0;
        let highest: Vec<usize> = stretches.iter().map(|stretch| stretch.highest).collect();
        let bands = trace.bands(pool, &highest);
        let summaries: Vec<_> =
            stretches.iter().map(|stretch| levels.summary(stretch.events.clone())).collect();
        let of_role = |role: usize| {
            bands.iter().map(|band| band.by_role.get(role).map_or(0, |bytes| bytes.0)).collect()
        };
        Timeline {
            begin: stretches.iter().map(|stretch| clock(stretch.events.start)).collect(),
            highest_after: stretches
                .iter()
                .map(|stretch| clock(stretch.highest) - clock(stretch.events.start))
                .collect(),
            least: summaries.iter().map(|all| all.map_or(0, |all| all.min)).collect(),
            last: summaries.iter().map(|all| all.map_or(0, |all| all.last)).collect(),
            by_role: std::array::from_fn(of_role),
            slack: bands.iter().map(|band| band.slack.0).collect(),
            before_recording: bands.iter().map(|band| band.before_recording.0).collect(),
        }
    }

    /// Columns of which only the height is known, not the roles.
    pub(super) fn of_counters(columns: &[Column]) -> Timeline {
        let of_role = |role: Role| -> Vec<u64> {
            match role {
                Role::Unknown => columns.iter().map(|column| column.summary.max).collect(),
                _ => vec![0; columns.len()],
            }
        };
        Timeline {
            begin: columns.iter().map(|column| column.begin).collect(),
            highest_after: vec![0; columns.len()],
            least: columns.iter().map(|column| column.summary.min).collect(),
            last: columns.iter().map(|column| column.summary.last).collect(),
            by_role: Role::ALL.map(of_role),
            slack: vec![0; columns.len()],
            before_recording: vec![0; columns.len()],
        }
    }
}
