//! The hosts of a job as `top` shows them: their ranks, steps and figures, how old the news is, and what each host does.

use std::collections::BTreeSet;

use vramline::analysis::top::{HostState, HostUse, LiveJob, MachineSight, top};
use vramline::recording::folder::ProcessId;
use vramline::recording::identity::RankIdentity;
use vramline::recording::live::News;
use vramline::recording::manifest::{ClockPair, Device, Exit, RunManifest};
use vramline::recording::reader::ProcessFacts;
use vramline::recording::rows::{Counters, Mark, Moment, RecordedMarkKind};
use vramline::recording::running::State;
use vramline::source::driver::DriverError;
use vramline::units::{Bytes, Nanos};

use crate::fixture;

const SECOND: i64 = 1_000_000_000;
/// The time at which everybody looks.
const NOW: Moment = Moment { monotonic: 50 * SECOND, wall: 10_000 * SECOND };

/// A rank of a job, and what it told last.
struct Told {
    host: &'static str,
    rank: Option<u64>,
    size: Option<u64>,
    /// By the wall clock of its host.
    at: i64,
    step: i64,
    device: &'static str,
    current: i64,
    peak: i64,
    limit: Option<i64>,
    exit: Option<Exit>,
}

impl Told {
    fn new(host: &'static str, rank: u64) -> Told {
        Told {
            host,
            rank: Some(rank),
            size: Some(4),
            at: NOW.wall - SECOND,
            step: 7,
            device: "GPU:0",
            current: 300,
            peak: 500,
            limit: Some(900),
            exit: None,
        }
    }

    fn identity(&self) -> RankIdentity {
        let run = Some(format!("{}-{}-1", self.host, self.pid() + 1000));
        let (host, job) = (Some(self.host.to_owned()), Some("mine".to_owned()));
        RankIdentity { job, host, run, rank: self.rank, world_size: self.size, ..RankIdentity::default() }
    }

    fn pid(&self) -> u32 {
        u32::try_from((self.at / SECOND).rem_euclid(20_000)).unwrap()
            + u32::try_from(self.rank.unwrap_or(90)).unwrap()
    }

    fn run(&self) -> RunManifest {
        let mut run = RunManifest::read(&fixture("tf221_cpu_keras.vram")).unwrap();
        let begin = ClockPair { realtime_ns: Nanos(self.at - SECOND), monotonic_ns: Nanos(0) };
        (run.clocks.begin, run.clocks.end, run.exit) = (begin, None, self.exit);
        (run.host, run.identity) = (self.host.to_owned(), self.identity());
        run.environment.clear();
        (run.settings.gpus, run.settings.limit_bytes) = (None, None);
        let uuid = Some("GPU-1".to_owned());
        run.devices = vec![Device { uuid, total_bytes: Some(Bytes(1000)), ..Device::default() }];
        run
    }

    fn mark(&self) -> Mark {
        let counters = Counters {
            device: self.device.to_owned(),
            current: Some(self.current),
            peak: Some(self.peak),
            limit: self.limit,
            ..Counters::default()
        };
        Mark {
            kind: RecordedMarkKind::Step,
            step: Some(self.step),
            begin: Some(1),
            // Monotonic clocks of hosts have other zero points.
            time: Moment { monotonic: self.at - 3 * SECOND, wall: self.at },
            counters: vec![counters],
            ..Mark::default()
        }
    }

    fn tell(&self, job: &mut LiveJob) {
        let launcher = ProcessId::new(self.host, self.pid() + 1000, 1);
        job.take(News::Joined(&launcher, Box::new(self.run())));
        let id = ProcessId::new(self.host, self.pid(), 1);
        let facts = ProcessFacts { rank: self.rank, identity: self.identity(), ..ProcessFacts::default() };
        job.take(News::Facts(&id, Box::new(facts)));
        job.take(News::Marks(&id, vec![self.mark()]));
    }
}

fn job(all: &[Told]) -> LiveJob {
    let mut job = LiveJob::new("job.vram".into());
    job.state = State::Elsewhere;
    all.iter().for_each(|told| told.tell(&mut job));
    job
}

fn hosts_of(jobs: &[LiveJob]) -> Vec<HostUse> {
    let sight = MachineSight {
        now: NOW,
        host: "login".to_owned(),
        memory: None,
        driver: Err(DriverError::DriverNotLoaded),
        jobs,
        seen: std::collections::BTreeMap::new(),
    };
    top(&sight).hosts
}

fn names(hosts: &[HostUse]) -> Vec<(Option<&str>, HostState)> {
    hosts.iter().map(|host| (host.host.as_deref(), host.state)).collect()
}

#[test]
fn a_host_has_the_extremes_of_its_ranks() {
    let slow = Told { step: 5, peak: 700, ..Told::new("a", 1) };
    // Without a limit the device is the limit.
    let tight = Told { current: 400, peak: 650, limit: None, ..Told::new("a", 0) };
    let hosts = hosts_of(&[job(&[tight, slow, Told::new("b", 2), Told::new("b", 3)])]);
    assert_eq!(names(&hosts), [(Some("a"), HostState::Running), (Some("b"), HostState::Running)]);
    let host = hosts.first().unwrap();
    assert_eq!((host.ranks.clone(), host.world_size), (BTreeSet::from([0, 1]), Some(4)));
    assert_eq!(
        (host.job_name.as_deref(), host.steps, host.in_use),
        (Some("mine"), Some((5, 7)), Some(Bytes(400)))
    );
    assert_eq!(host.peak.map(|peak| (peak.bytes, peak.rank)), Some((Bytes(700), Some(1))));
    assert_eq!(host.headroom.map(|left| (left.bytes, left.rank)), Some((Bytes(200), Some(1))));
    assert_eq!(host.age, Some(Nanos(SECOND)));
    // Of ranks with the same figures the lowest stands for them.
    let other = hosts.get(1).unwrap();
    assert_eq!(other.headroom.map(|left| (left.bytes, left.rank)), Some((Bytes(400), Some(2))));
}

#[test]
fn what_needs_attention_comes_first() {
    let silent = Told { at: NOW.wall - 61 * SECOND, ..Told::new("c", 2) };
    let failed = Told { exit: Some(Exit::Code(1)), ..Told::new("b", 1) };
    let done = Told { exit: Some(Exit::Code(0)), ..Told::new("d", 4) };
    let hosts = hosts_of(&[job(&[Told::new("a", 0), failed, silent, done])]);
    // Rank 3 was announced, and no host has shown it.
    let expected = [
        (None, HostState::Unseen),
        (Some("c"), HostState::Silent),
        (Some("b"), HostState::Ended),
        (Some("a"), HostState::Running),
        (Some("d"), HostState::Ended),
    ];
    assert_eq!(names(&hosts), expected);
    assert_eq!(hosts[0].ranks, BTreeSet::from([3]));
    assert_eq!((hosts[0].age, hosts[0].peak), (None, None));
    assert_eq!(hosts[1].age, Some(Nanos(61 * SECOND)));
    assert_eq!(hosts[2].exit, Some(Exit::Code(1)));
}

#[test]
fn a_rank_that_was_started_again_counts_once() {
    let first =
        Told { at: NOW.wall - 500 * SECOND, peak: 890, exit: Some(Exit::Signal(9)), ..Told::new("b", 1) };
    let hosts = hosts_of(&[job(&[Told::new("a", 0), first, Told::new("c", 1)])]);
    let seen: Vec<_> = hosts.iter().map(|host| (host.host.as_deref(), host.ranks.len())).collect();
    assert_eq!(seen, [(None, 2), (Some("a"), 1), (Some("c"), 1)]);
}

#[test]
fn an_unknown_age_is_not_an_age() {
    let tomorrow = || Told { at: NOW.wall + 86_400 * SECOND, size: None, ..Told::new("a", 0) };
    let hosts = hosts_of(&[job(&[tomorrow()])]);
    assert_eq!((names(&hosts), hosts[0].age), (vec![(Some("a"), HostState::Elsewhere)], None));
    // What comes while somebody looks is as old as that, whatever the clock of the host shows.
    for at in [tomorrow().at, NOW.wall - 86_400 * SECOND] {
        let told = || Told { at, ..tomorrow() };
        let mut live = job(&[told()]);
        live.reads_at = Some(NOW.monotonic - 2 * SECOND);
        told().tell(&mut live);
        let hosts = hosts_of(&[live]);
        assert_eq!((hosts[0].state, hosts[0].age), (HostState::Running, Some(Nanos(2 * SECOND))));
    }
}

#[test]
fn a_host_that_only_has_a_launcher_is_there() {
    let mut live = job(&[Told::new("a", 0)]);
    let alone = Told { rank: None, ..Told::new("b", 9) };
    live.take(News::Joined(&ProcessId::new("b", 7, 1), Box::new(alone.run())));
    let hosts = hosts_of(&[live]);
    let host = hosts.iter().find(|host| host.host.as_deref() == Some("b")).unwrap();
    assert_eq!(
        (host.ranks.len(), host.steps, host.in_use, host.peak, host.headroom),
        (0, None, None, None, None)
    );
    assert_eq!((host.state, host.age), (HostState::Running, Some(Nanos(2 * SECOND))));
}

#[test]
fn jobs_without_ranks_and_hostile_numbers_have_rows() {
    let strange = || Told {
        rank: None,
        size: Some(u64::MAX),
        at: NOW.wall - SECOND,
        step: i64::MIN,
        current: -1,
        peak: i64::MAX,
        limit: Some(-5),
        device: "\u{1b}[2J",
        ..Told::new("h\u{7}", 0)
    };
    let plain = Told { rank: None, size: None, device: "CPU:0", limit: Some(64 << 30), ..Told::new("p", 0) };
    let hosts = hosts_of(&[job(&[strange()]), job(&[plain]), LiveJob::new("empty.vram".into())]);
    let seen: Vec<_> = hosts.iter().map(|host| (host.job, host.host.as_deref(), host.ranks.len())).collect();
    assert_eq!(seen, [(0, None, 1 << 16), (0, Some("h\u{7}"), 0), (1, Some("p"), 0)]);
    assert_eq!((hosts[1].in_use, hosts[1].headroom), (None, None));
    // The framework's default for host memory is no limit.
    assert_eq!((hosts[2].peak.map(|peak| peak.rank), hosts[2].headroom), (Some(None), None));
}
