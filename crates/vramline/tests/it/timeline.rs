//! The pyramid against the points themselves: no peak is lost, in any window, at any width.

use proptest::prelude::*;
use vramline::snapshot::Role;
use vramline::timeline::{Column, Pyramid, Series, Summary};
use vramline::units::Bytes;

use crate::root;

fn plain(points: &[u64]) -> Option<Summary> {
    Some(Summary { min: *points.iter().min()?, max: *points.iter().max()?, last: *points.last()? })
}

/// Moments in order, some of them at the same time, with values that repeat.
fn series() -> impl Strategy<Value = Vec<(i64, u64)>> {
    prop::collection::vec((0_i64..4, 0_u64..50), 1..1500).prop_map(|steps| {
        let mut time = -20;
        let point = |(step, value)| {
            time += step;
            (time, value)
        };
        steps.into_iter().map(point).collect()
    })
}

/// What the series was from `begin` up to `until`, point by point.
fn slow(points: &[(i64, u64)], begin: i64, until: i64) -> Option<Summary> {
    let inside = points.iter().filter(|(time, _)| (begin..until).contains(time)).map(|(_, value)| *value);
    let carried = points.iter().take_while(|(time, _)| *time < begin).last().map(|(_, value)| *value);
    let is_new = points.iter().any(|(time, _)| *time == begin);
    let all: Vec<u64> = carried.filter(|_| !is_new).into_iter().chain(inside).collect();
    plain(&all)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: prop::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn every_stretch_is_that_of_its_points(
        points in prop::collection::vec(0_u64..1000, 0..5000), a in 0_usize..5200, b in 0_usize..5200,
    ) {
        let pyramid = Pyramid::new(points.clone());
        let (from, to) = (a.min(b), a.max(b));
        let inside = &points[from.min(points.len())..to.min(points.len())];
        prop_assert_eq!(pyramid.summary(from..to), plain(inside));
        let highest = inside.iter().max().map(|max| {
            (from + inside.iter().position(|at| at == max).unwrap(), *max)
        });
        prop_assert_eq!(pyramid.highest(from..to), highest);
    }

    #[test]
    fn every_column_is_that_of_its_points(
        points in series(), begin in -30_i64..3000, length in 1_i64..3000, width in 1_usize..300,
    ) {
        let columns = Series::new(points.clone()).window(begin..begin + length, width);
        prop_assert!(columns.len() <= width);
        let count = i64::try_from(width).unwrap().min(length);
        let edge = |at: i64| begin + length * at / count;
        let expected: Vec<Column> = (0..count)
            .filter_map(|at| {
                let summary = slow(&points, edge(at), edge(at + 1))?;
                Some(Column { begin: edge(at), summary })
            })
            .collect();
        prop_assert_eq!(columns, expected);
    }

    #[test]
    fn every_peak_survives_at_every_width(points in series(), width in 1_usize..500) {
        let peak = points.iter().map(|(_, value)| *value).max().unwrap();
        let columns = Series::new(points).whole(width);
        prop_assert_eq!(columns.iter().map(|column| column.summary.max).max(), Some(peak));
    }
}

/// The ends of the clock, and windows of nothing.
#[test]
fn far_away_and_empty() {
    let far = Series::new([(i64::MIN, 1), (i64::MAX - 1, 2)]);
    assert_eq!(
        far.window(i64::MIN..i64::MAX, 3).iter().map(|column| column.summary.max).collect::<Vec<_>>(),
        [1, 1, 2]
    );
    assert_eq!(far.window(5..5, 3), []);
    assert_eq!(far.window(0..5, 0), []);
    assert_eq!(Series::default().whole(10), []);
    assert!(Pyramid::default().is_empty());
}

/// At every moment of real traces the parts add up, and are those of the snapshot of that moment.
#[test]
fn bands_are_those_of_snapshots() {
    let files = [
        "tf221_cpu_cnn_from_start.xplane.pb",
        "tf221_cpu_mlp_window.xplane.pb",
        "jax0112_h200_convolution.xplane.pb.gz",
        "jax0112_h200_growth_window.xplane.pb",
        "torch/default.pickle.gz",
        "torch/late.pickle.gz",
        "torch/random_streams.pickle.gz",
    ];
    let mut compared = 0;
    for file in files {
        let reading = vramline::read(&root().join("fixtures").join(file)).unwrap();
        for host in &reading.hosts {
            for pool in &host.trace.pools {
                let count = pool.event_count();
                let positions: Vec<usize> = (0..count).step_by(count.div_ceil(200)).collect();
                let bands = host.trace.bands(pool, &positions);
                let snapshots = host.trace.snapshots(pool, &positions);
                for ((&position, band), snapshot) in positions.iter().zip(&bands).zip(&snapshots) {
                    assert_eq!(band.in_use(), pool.in_use_at(&host.trace.history.events, position), "{file}");
                    assert_eq!(band.before_recording, snapshot.before_recording, "{file} {position}");
                    assert_eq!(band.slack, snapshot.slack(), "{file} {position}");
                    for (role, bytes) in Role::ALL.into_iter().zip(band.by_role) {
                        let held = snapshot.held.iter().filter(|held| held.role == role);
                        let held: Bytes = held.map(|held| held.requested).sum();
                        assert_eq!(bytes, held, "{file} {position} {role:?}");
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}
