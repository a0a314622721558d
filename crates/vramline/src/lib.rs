//! Vramline reads what TensorFlow, JAX and PyTorch write about GPU memory, and says what held it, to the byte.
//!
//! This is the library behind the command `vramline`. Programs use it to look at memory traces themselves: in a dashboard, in a
//! test that fails when a model needs more memory than it did, in a scheduler that asks what fits.
//!
//! # What it reads
//!
//! [`read`] takes a path and finds out by content, not by name, what is there. Gzip is accepted everywhere.
//!
//! | what | who writes it | has a history |
//! |---|---|---|
//! | profiler trace (XPlane), or its log directory | `tf.profiler.experimental`, `jax.profiler.trace` | yes |
//! | memory snapshot (pickle, never executed) | `torch.cuda.memory._dump_snapshot` | yes |
//! | recording, a folder `*.vram` (feature `recording`) | `vramline run` | yes |
//! | memory profile (pprof), compiled program (HLO) | JAX, XLA | no: one moment |
//! | log with out-of-memory errors, memory dump | TensorFlow, JAX, PyTorch | no: one moment |
//!
//! # Five tasks
//!
//! Each has an example in `crates/vramline/examples` that prints more than the lines here.
//!
//! **Find the peak** (`peak.rs`): [`fn@report`] answers with a [`Report`].
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
//! use vramline::{Bytes, ReportOptions, read, report};
//!
//! let report = report(&read(path.as_ref())?, &ReportOptions::default());
//! assert_eq!(report.pools[0].name, "bfc_cpu_allocator_for_gpu");
//! assert_eq!(report.pools[0].peak_bytes, Some(Bytes(72_718_080)));
//! # Ok::<(), vramline::SourceError>(())
//! ```
//!
//! **Walk the allocations** (`allocations.rs`): [`pools`] lists the pools, [`PoolHistory::allocations`] every allocation with its
//! op, layer, role, shape, birth and end.
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
//! let reading = vramline::read(path.as_ref())?;
//! let pools = vramline::pools(&reading, None)?;
//! assert_eq!(pools[0].allocations().count(), 5_060);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Ask what if** (`what_if.rs`): [`fn@replay`] runs the trace's requests through a simulation of the framework's allocator, also with
//! another limit or other [`Setting`]s.
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
//! use vramline::{ReplayOptions, read, replay};
//!
//! let what_if = vec!["limit=50MiB".parse()?, "growth=off,limit=128MiB".parse()?];
//! let options = ReplayOptions { what_if, ..ReplayOptions::default() };
//! let replay = replay(&read(path.as_ref())?, &options)?;
//! assert!(replay.pools[0].exact, "every address of the trace is reproduced");
//! let fits: Vec<_> = replay.what_if.iter().map(|answer| answer.fits).collect();
//! assert_eq!(fits, [Some(false), Some(true)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Explain an out-of-memory error** (`post_mortem.rs`): [`read_failures`] finds every failed allocation in a log, [`oom`] says why
//! each failed.
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_oom.log");
//! use vramline::{documents::Verdict, oom, read_failures};
//!
//! let report = oom(&read_failures(&[path.into()], None, &Default::default())?);
//! assert_eq!(report.failures[0].verdict, Some(Verdict::Slack));
//! assert!(report.headline.starts_with("Out of memory (rounding): an allocation of 19.1 MiB"), "{}", report.headline);
//! # Ok::<(), vramline::SourceError>(())
//! ```
//!
//! **Plan a larger batch** (`plan.rs`): [`fn@plan`] takes traces of three small batch sizes and predicts any other.
//!
//! ```
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/plan");
//! use vramline::{Bytes, PlanOptions, ProbeRead, plan, read};
//!
//! let probe = |batch: u64| {
//!     let file = format!("{folder}/gpt-adamw-{batch}.pickle.gz");
//!     Ok::<_, vramline::SourceError>(ProbeRead { batch, reading: read(file.as_ref())?, file })
//! };
//! let options = PlanOptions { batches: vec![64], ..PlanOptions::default() };
//! let plan = plan(&[probe(2)?, probe(4)?, probe(8)?], &options)?;
//! // What a run at 64 really took on an H200.
//! assert_eq!(plan.predictions[0].peak_bytes, Bytes(11_945_836_544));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Answers are documents
//!
//! Each answer is plain data with public fields ([`Report`], [`Replay`], [`OomReport`], [`PlanView`]; their parts are in [`documents`]) and
//! implements `serde::Serialize`. Its JSON is what the command of the same name prints with `--json`, and is described field by
//! field in `docs/reference/json.md`. An unknown figure is `None`, never zero, and [`Unknown`] says why and what would make it known. What was
//! wrong with the input is a [`Warning`]. Sums are exact: in every pool the named, the unnamed, the slack and what was there
//! before the recording add up to the bytes in use.
//!
//! # Errors
//!
//! Whatever a file holds, reading it neither panics nor recurses without bound, and it allocates no more than the file paid for.
//! [`SourceError`] says what is wrong with a path, [`SourceError::hint`] what to do about it. A file that is cut or damaged in places is
//! read as far as it goes, with warnings.
//!
//! # Features
//!
//! No feature is on by default: reading traces, snapshots, logs and dumps needs none.
//!
//! - `recording`: [`read`] and [`read_failures`] also take recordings of `vramline run`. Brings the Arrow crates.
//! - `internals`: every module is public. This is for Vramline's own programs; **nothing in a module other than [`documents`] is promised**,
//!   and any release may change it.
//! - `driver`: asks NVIDIA's driver about this machine, through NVML. Of use together with `internals` only.
//!
//! # What is promised
//!
//! Everything at the root of this crate and in [`documents`] follows semantic versioning. Documents and options may get more fields in a minor
//! release: read the fields that you need, and make options with `..Default::default()`. Enums of words may get more words, except for
//! [`Role`], which is closed. The crate runs on Linux. Without the feature `recording` it also compiles for macOS and Windows, where it reads
//! files; that is not tested.
//!
//! The facts about formats that it relies on are in the documentation of the repository: `docs/explanation/how-it-works.md` (how large files are read),
//! `docs/reference/recording.md` (the files of a recording), `docs/explanation/how-replay-works.md` (the allocators), `docs/explanation/how-planning-works.md` (how predictions are made and how
//! good they are).

// Some code is there for one feature or for Vramline's own programs only. With all features nothing of it may be unused.
#![cfg_attr(
    not(all(feature = "driver", feature = "internals", feature = "recording")),
    allow(dead_code, unreachable_pub, unused_imports)
)]

#[cfg(all(feature = "recording", not(target_os = "linux")))]
compile_error!(
    "the feature `recording` needs Linux: recordings are written and read through calls of its kernel; other files are read without it"
);

/// The stages of the house, in this folder. They are public at the root with the feature `internals`, private without: a
/// declaration at the root would have to stand there twice.
#[path = ""]
mod stages {
    #[macro_use]
    mod words;
    #[macro_use]
    mod opaque;

    pub mod advise;
    pub mod allocator;
    pub mod analysis;
    pub mod document;
    pub mod dtype;
    pub mod event;
    pub mod executable;
    pub mod failure;
    pub mod ledger;
    pub mod names;
    pub(crate) mod pages;
    pub mod plan;
    pub mod postmortem;
    pub mod recording;
    pub mod replay;
    pub mod snapshot;
    pub mod source;
    pub mod stack;
    pub(crate) mod surface;
    pub mod timeline;
    pub mod trace;
    pub mod units;
    pub mod view;
    pub mod warning;
    pub(crate) mod worker;
}

#[cfg(feature = "internals")]
pub use stages::*;
#[cfg(not(feature = "internals"))]
use stages::*;
use stages::{pages, surface, worker};

// Reading.
#[doc(inline)]
pub use analysis::causes::read_failures;
pub use analysis::reading::{OutOfMemory, Reading, read, read_watched};
#[doc(inline)]
pub use source::{Progress, SourceError};

// The allocations of a trace.
#[doc(inline)]
pub use analysis::export::{Allocation, NothingToExport, PoolHistory, StepSpan, pools};
#[doc(inline)]
pub use dtype::Dtype;
#[doc(inline)]
pub use event::Phase;
#[doc(inline)]
pub use snapshot::Role;

// Questions, and what is asked.
#[doc(inline)]
pub use analysis::held::GroupBy;
#[doc(inline)]
pub use analysis::plan::{NoPlan, PlanOptions, ProbeRead};
#[doc(inline)]
pub use analysis::replay::{ExtraRequest, ReplayOptions};
#[doc(inline)]
pub use analysis::report::ReportOptions;
#[doc(inline)]
pub use plan::NotPlanned;
#[doc(inline)]
pub use replay::{NotASetting, NotForThis, NotReplayed, Restart, Setting, SplitSize};
#[doc(inline)]
pub use surface::{oom, plan, replay, report};

// Answers.
#[doc(inline)]
pub use units::{Bytes, Nanos, NotASize, NotATime};
#[doc(inline)]
pub use view::{oom::OomReport, plan::PlanView, replay::Replay, report::Report};
#[doc(inline)]
pub use warning::{Unknown, Warning};

/// The parts of the answers, and the words in them.
///
/// They are plain data that serialises to the JSON which `docs/reference/json.md` of the repository describes. Start from [`Report`], [`Replay`], [`OomReport`] or [`PlanView`].
pub mod documents {
    // Of a report.
    #[doc(inline)]
    pub use crate::stages::analysis::{
        caching::CachedWhen,
        headline::ReportWord,
        held::HeldMoment,
        limit::LimitSetter,
        ranks::{clocks::AlignedBy, endings::RankEnd, groups::Grouping},
    };
    #[doc(inline)]
    pub use crate::stages::event::{Framework, How, Vendor};
    #[doc(inline)]
    pub use crate::stages::ledger::{LineKind, Teller, moments::LedgerMoment};
    #[doc(inline)]
    pub use crate::stages::recording::identity::{Launcher, TaskRole};
    #[doc(inline)]
    pub use crate::stages::recording::kinds::{RecordedMarkKind, TraceState, WindowReason};
    #[doc(inline)]
    pub use crate::stages::recording::manifest::Exit;
    #[doc(inline)]
    pub use crate::stages::view::caching::{CachedView, CachingFailureView, CachingView, StreamView};
    #[doc(inline)]
    pub use crate::stages::view::patterns::{ChurningView, PatternsView};
    #[doc(inline)]
    pub use crate::stages::view::ranks::{
        DifferenceView, FirstFailureView, HostClockView, OutlierView, RankGroupView, RankPeakView, RankView,
        RanksView,
    };
    #[doc(inline)]
    pub use crate::stages::view::report::{
        BeforeView, ByRole, HardwareView, HeldView, LongView, PeakPartView, PoolView, ReportVerdict, Rest,
        Row, SourceView,
    };
    #[doc(inline)]
    pub use crate::stages::view::run::{
        EpochView, InventoryView, MarkView, PhaseView, ProcessView, RunView, StepView,
    };
    #[doc(inline)]
    pub use crate::stages::view::windows::{PeakPlaceView, WindowView};
    #[doc(inline)]
    pub use crate::stages::view::{findings::FindingView, ledger::LedgerView, replayed::ReplayedView};

    // Of a replay.
    #[doc(inline)]
    pub use crate::stages::analysis::replay::ReplayWord;
    #[doc(inline)]
    pub use crate::stages::replay::AnsweredBy;
    #[doc(inline)]
    pub use crate::stages::view::replay::{
        AskedView, CauseView, DriverCallsView, EndedEarlyView, FailedView, GrowthView, MismatchView,
        MomentView, OpView, PointView, ReplayPoolView, ReplayVerdictView, StrandedView, WhatIfView,
    };

    // Of a post-mortem.
    #[doc(inline)]
    pub use crate::stages::analysis::moments::HeldSource;
    #[doc(inline)]
    pub use crate::stages::analysis::oom::OomWord;
    #[doc(inline)]
    pub use crate::stages::failure::{Dialect, Platform};
    #[doc(inline)]
    pub use crate::stages::postmortem::Verdict;
    #[doc(inline)]
    pub use crate::stages::postmortem::outcome::FailureOutcome;
    #[doc(inline)]
    pub use crate::stages::view::moments::{HeldThenView, OwnerView};
    #[doc(inline)]
    pub use crate::stages::view::oom::{
        AdviceView, BridgeView, BufferView, ChunkView, FailureView, GroupView, HolderView, OomVerdictView,
        RegionView, SoftView, WitnessView,
    };

    // Of a plan.
    #[doc(inline)]
    pub use crate::stages::analysis::plan::{ConfirmationState, PlanVerdict, Saving};
    #[doc(inline)]
    pub use crate::stages::plan::{Basis, Part};
    #[doc(inline)]
    pub use crate::stages::view::plan::{
        CompiledView, ConfirmationView, CurvePoint, FixView, LargestView, NextProbeView, PartView,
        PlanVerdictView, PredictionView, ProbeView, RealRunView,
    };
}
