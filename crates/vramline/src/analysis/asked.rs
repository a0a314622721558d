//! What the processes of a running job did when they were asked for a snapshot.

use std::path::{Path, PathBuf};

use crate::recording::folder::{ProcessId, host_name};
use crate::recording::kinds::RecordedMarkKind;
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::request::{AnswerCounters, FrameworkAnswer, SnapshotAnswer};

/// What became of a request for a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotAnalysis {
    /// The recording.
    pub path: PathBuf,
    /// How long the answers took, in seconds.
    pub seconds: f64,
    /// The processes that the recording knows.
    pub processes: Vec<AskedProcess>,
}

/// A process that was asked.
#[derive(Clone, Debug)]
pub struct AskedProcess {
    /// Which.
    pub id: ProcessId,
    /// Its rank in a distributed job.
    pub rank: Option<u64>,
    /// What it did.
    pub state: AskedState,
    /// The framework that did it, as it is imported.
    pub framework: Option<String>,
    /// The number of its snapshot or trace in the recording.
    pub number: Option<u64>,
    /// Why there is no snapshot.
    pub reason: Option<String>,
    /// How long it took, in seconds.
    pub seconds: Option<f64>,
    /// The counters of each device then.
    pub counters: Vec<AnswerCounters>,
}

/// What a process did when it was asked. The best comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AskedState {
    /// It wrote a snapshot.
    Taken,
    /// It opened a trace window, which will show its next steps.
    Opened,
    /// It could read counters only.
    Counters,
    /// Its snapshot failed.
    Failed,
    /// It did not answer in time.
    NoAnswer,
    /// It had ended.
    Ended,
}

words!(AskedState {
    Taken => "taken",
    Opened => "opened",
    Counters => "counters",
    Failed => "failed",
    NoAnswer => "no-answer",
    Ended => "ended",
});

/// The processes of a recording that may still answer. Of another host only its own end tells.
#[must_use]
pub fn running(recorded: &Recorded) -> Vec<ProcessId> {
    if recorded.has_ended() {
        return Vec::new();
    }
    let here = ProcessId::new(&host_name(), 0, 0);
    let has_ended =
        |process: &RecordedProcess| process.marks.iter().any(|mark| mark.kind == RecordedMarkKind::End);
    let runs = |process: &&RecordedProcess| {
        let id = &process.id;
        let is_here = id.host() == here.host();
        let is_gone = || ProcessId::of_running(id.pid()).is_ok_and(|found| found != *id) || !exists(id.pid());
        !(has_ended(process) || is_here && is_gone())
    };
    recorded.processes.iter().filter(runs).map(|process| process.id.clone()).collect()
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

impl SnapshotAnalysis {
    /// Puts the answers together. `asked` are the processes that could answer.
    #[must_use]
    pub fn of(
        recorded: &Recorded,
        asked: &[(ProcessId, Option<SnapshotAnswer>)],
        seconds: f64,
    ) -> SnapshotAnalysis {
        let of = |process: &RecordedProcess| {
            let was_asked = asked.iter().find(|(id, _)| *id == process.id);
            let silent = if was_asked.is_some() { AskedState::NoAnswer } else { AskedState::Ended };
            let bare = AskedProcess {
                id: process.id.clone(),
                rank: process.facts.rank,
                state: silent,
                framework: None,
                number: None,
                reason: None,
                seconds: None,
                counters: Vec::new(),
            };
            match was_asked.and_then(|(_, answer)| answer.as_ref()) {
                Some(answer) => bare.answered(answer),
                None => bare,
            }
        };
        let processes = recorded.processes.iter().map(of).collect();
        SnapshotAnalysis { path: recorded.path.clone(), seconds, processes }
    }

    /// The number of processes that answered, and of those that should have.
    #[must_use]
    pub fn answered(&self) -> (usize, usize) {
        let asked = self.processes.iter().filter(|process| process.state != AskedState::Ended);
        let answered = asked.clone().filter(|process| process.state != AskedState::NoAnswer).count();
        (answered, asked.count())
    }

    /// The answer in a sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let ended = self.processes.iter().filter(|process| process.state == AskedState::Ended).count();
        let ended = match ended {
            0 => String::new(),
            1 => "; 1 more had ended".to_owned(),
            count => format!("; {count} more had ended"),
        };
        let (answered, asked) = self.answered();
        let taken = self.processes.iter().filter(|process| process.state <= AskedState::Opened).count();
        match (asked, answered) {
            (0, _) => format!("No process of '{}' is running.", self.path.display()),
            (_, 0) => format!("None of the {asked} running processes answered{ended}."),
            _ => format!(
                "{answered} of {asked} running processes answered, {taken} with a snapshot or trace{ended}."
            ),
        }
    }
}

impl AskedProcess {
    fn answered(self, answer: &SnapshotAnswer) -> AskedProcess {
        let state = |told: &FrameworkAnswer| AskedState::of_word(&told.state).unwrap_or(AskedState::Failed);
        let best = answer.frameworks.iter().min_by_key(|(_, told)| state(told));
        let (framework, told) = best.unzip();
        AskedProcess {
            rank: answer.rank.or(self.rank),
            state: told.map_or(AskedState::Counters, state),
            framework: framework.cloned(),
            number: told.and_then(|told| told.number),
            reason: match told {
                Some(told) => told.reason.clone(),
                None => Some("no framework is in use in this process".to_owned()),
            },
            seconds: answer.seconds,
            counters: answer.counters.clone(),
            ..self
        }
    }
}
