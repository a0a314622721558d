//! Which part of which job a process is, as its launcher and its framework tell it.
//!
//! [`RankIdentity::of`] is the only place that knows the launchers' variables and decides which of them counts. The parent of a run and each
//! process of the job ask it, each with the variables that it sees. What several processes say is not put together here.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::folder::host_name;

/// Set by the parent: the name of the job.
pub const JOB: &str = "VRAMLINE_JOB";

/// Set by the parent: the name of the run, as in [`RankIdentity::run`].
pub const RUN_NAME: &str = "VRAMLINE_RUN";

/// Set by the parent: the user's labels, as a JSON object.
pub const LABELS: &str = "VRAMLINE_LABELS";

/// The variables that are read here. A recording keeps them.
pub(super) const VARIABLES: [&str; 30] = [
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NODEID",
    "SLURM_NNODES",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_RESTART_COUNT",
    "TF_CONFIG",
    "JOB_COMPLETION_INDEX",
];

/// Slurm's numbers for what is no step of `srun`, such as the batch script, begin here.
const FIRST_SPECIAL_STEP: u64 = 0xFFFF_FF00;

/// A larger `TF_CONFIG` is not one.
const LONGEST_CONFIG: usize = 1 << 20;

/// Which part of which job a process is. What nobody tells is `None`, as is everything in older recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankIdentity {
    /// The name of the job: that of `--job`, else the launcher's.
    pub job: Option<String>,
    /// The name of the machine, as the kernel has it.
    pub host: Option<String>,
    /// The kernel's name for the time since it was booted. Processes with the same one share a monotonic clock; two machines
    /// with one host name differ in it.
    pub boot_id: Option<String>,
    /// The name of the run (`vramline run`) that the process belongs to: host, number and start of its parent process.
    pub run: Option<String>,
    /// The number of the process in the job.
    pub rank: Option<u64>,
    /// Its number among the processes of its machine.
    pub local_rank: Option<u64>,
    /// The number of its machine in the job.
    pub node_rank: Option<u64>,
    /// How many processes the job has.
    pub world_size: Option<u64>,
    /// How many of them this machine has.
    pub local_world_size: Option<u64>,
    /// How many times the launcher has restarted this part of the job. Not every launcher counts.
    pub attempt: Option<u64>,
    /// Its task in a cluster of TensorFlow.
    #[serde(deserialize_with = "known_role")]
    pub role: Option<TaskRole>,
    /// Its number among the tasks of its role.
    pub task_index: Option<u64>,
    /// Who told the rank; without a rank, who told the job.
    #[serde(deserialize_with = "known_launcher")]
    pub launcher: Option<Launcher>,
    /// The user's labels.
    pub labels: BTreeMap<String, String>,
}

/// A task in a cluster of TensorFlow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskRole {
    /// The worker that also saves checkpoints. Older versions call it master.
    Chief,
    /// A worker.
    Worker,
    /// A parameter server.
    ParameterServer,
    /// A process that evaluates checkpoints, beside the training.
    Evaluator,
}

words!(TaskRole {
    Chief => "chief",
    Worker => "worker",
    ParameterServer => "ps",
    Evaluator => "evaluator",
});

/// Who tells a process its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Launcher {
    /// `torchrun`.
    Torchrun,
    /// Another program that sets `RANK` and `WORLD_SIZE`, as PyTorch's `env://` expects them.
    RankVariables,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Another launcher that speaks PMIx or PMI.
    Pmix,
    /// Slurm's `srun`.
    Slurm,
    /// JAX itself, with `jax.distributed`.
    Jax,
    /// PyTorch itself, with `torch.distributed`.
    TorchDistributed,
    /// The variable `TF_CONFIG`.
    TfConfig,
    /// A Job of Kubernetes with indexes.
    Kubernetes,
}

words!(Launcher {
    Torchrun => "torchrun",
    RankVariables => "rank-variables",
    OpenMpi => "open-mpi",
    Pmix => "pmix",
    Slurm => "slurm",
    Jax => "jax",
    TorchDistributed => "torch-distributed",
    TfConfig => "tf-config",
    Kubernetes => "kubernetes",
});

/// The rank that a framework knows once it is connected to the other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameworkRank {
    /// Which framework.
    pub launcher: Launcher,
    /// Its rank.
    pub rank: u64,
    /// How many processes are connected.
    pub world_size: Option<u64>,
}

/// What one launcher tells.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    launcher: Option<Launcher>,
    rank: Option<u64>,
    local_rank: Option<u64>,
    node_rank: Option<u64>,
    world_size: Option<u64>,
    local_world_size: Option<u64>,
}

impl RankIdentity {
    /// The identity of a process of this machine with these variables. `framework` is what its framework knows.
    ///
    /// A framework that is connected knows best; then the innermost launcher counts: torchrun, Open MPI, PMIx, Slurm, `TF_CONFIG`,
    /// Kubernetes. What that one does not tell is taken from the next that gives the same rank.
    #[must_use]
    pub fn of(variables: &BTreeMap<String, String>, framework: Option<FrameworkRank>) -> RankIdentity {
        let env = Variables(variables);
        let task = env.text("TF_CONFIG").and_then(Task::of);
        let framework = framework.map(|known| Told {
            launcher: Some(known.launcher),
            rank: Some(known.rank),
            world_size: known.world_size,
            ..Told::default()
        });
        let mut tellers: Vec<Told> = env.launchers();
        tellers.extend(task.as_ref().map(Task::told));
        tellers.extend(env.kubernetes());
        let rank = framework.iter().chain(&tellers).find_map(|told| told.rank.map(|rank| (rank, *told)));
        let mut identity = RankIdentity {
            job: env.text(JOB).map(str::to_owned).or_else(|| env.job()),
            host: Some(host_name()).filter(|name| !name.is_empty()),
            boot_id: super::folder::boot_id(),
            run: env.text(RUN_NAME).map(str::to_owned),
            attempt: env.number("TORCHELASTIC_RESTART_COUNT").or_else(|| env.number("SLURM_RESTART_COUNT")),
            role: task.as_ref().map(|task| task.role),
            task_index: task.as_ref().map(|task| task.index),
            labels: env.text(LABELS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            ..RankIdentity::default()
        };
        let Some((rank, first)) = rank else {
            identity.launcher = env.slurm_job().map(|_| Launcher::Slurm);
            return identity;
        };
        identity.rank = Some(rank);
        identity.world_size = first.world_size;
        // A framework that only repeats the launcher's numbers was not the one to tell them.
        identity.launcher = tellers
            .iter()
            .find(|told| told.agrees_with(&first))
            .filter(|_| framework.is_some())
            .unwrap_or(&first)
            .launcher;
        for told in std::iter::once(&first).chain(tellers.iter().filter(|told| told.agrees_with(&first))) {
            identity.world_size = identity.world_size.or(told.world_size);
            identity.local_rank = identity.local_rank.or(told.local_rank);
            identity.node_rank = identity.node_rank.or(told.node_rank);
            identity.local_world_size = identity.local_world_size.or(told.local_world_size);
        }
        identity
    }
}

impl Told {
    /// Whether this describes the same process among the same processes.
    fn agrees_with(&self, other: &Told) -> bool {
        let is_same_size = self.world_size.zip(other.world_size).is_none_or(|(a, b)| a == b);
        self.rank.is_some() && self.rank == other.rank && is_same_size
    }
}

/// The variables of a process.
struct Variables<'a>(&'a BTreeMap<String, String>);

impl<'a> Variables<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &str) -> Option<u64> {
        // "+1" is read as a number too, but no launcher writes that.
        self.text(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
    }

    /// What the launchers tell that start processes, the innermost first.
    fn launchers(&self) -> Vec<Told> {
        let is_torchrun = self.text("TORCHELASTIC_RUN_ID").is_some();
        let torch = Told {
            launcher: Some(if is_torchrun { Launcher::Torchrun } else { Launcher::RankVariables }),
            rank: self.number("RANK"),
            local_rank: self.number("LOCAL_RANK"),
            node_rank: self.number("GROUP_RANK"),
            world_size: self.number("WORLD_SIZE"),
            local_world_size: self.number("LOCAL_WORLD_SIZE"),
        };
        let open_mpi = Told {
            launcher: Some(Launcher::OpenMpi),
            rank: self.number("OMPI_COMM_WORLD_RANK"),
            local_rank: self.number("OMPI_COMM_WORLD_LOCAL_RANK"),
            // OMPI_COMM_WORLD_NODE_RANK is not the number of the node.
            node_rank: None,
            world_size: self.number("OMPI_COMM_WORLD_SIZE"),
            local_world_size: self.number("OMPI_COMM_WORLD_LOCAL_SIZE"),
        };
        let pmix = Told {
            launcher: Some(Launcher::Pmix),
            rank: self.number("PMIX_RANK").or_else(|| self.number("PMI_RANK")),
            local_rank: self.number("MPI_LOCALRANKID"),
            node_rank: None,
            world_size: self.number("PMI_SIZE"),
            local_world_size: self.number("MPI_LOCALNRANKS"),
        };
        let mut found = vec![torch, open_mpi, pmix];
        found.extend(self.slurm());
        found
    }

    /// What `srun` tells. A batch script has the same variables, but is no task.
    fn slurm(&self) -> Option<Told> {
        let is_task = self.text("SLURM_JOB_ID").is_none() || self.slurm_step().is_some();
        is_task.then(|| Told {
            launcher: Some(Launcher::Slurm),
            rank: self.number("SLURM_PROCID"),
            local_rank: self.number("SLURM_LOCALID"),
            node_rank: self.number("SLURM_NODEID"),
            world_size: self.number("SLURM_STEP_NUM_TASKS").or_else(|| self.number("SLURM_NTASKS")),
            local_world_size: None,
        })
    }

    fn slurm_step(&self) -> Option<u64> {
        self.number("SLURM_STEP_ID").filter(|&step| step < FIRST_SPECIAL_STEP)
    }

    fn slurm_job(&self) -> Option<String> {
        match (self.text("SLURM_ARRAY_JOB_ID"), self.text("SLURM_ARRAY_TASK_ID")) {
            (Some(array), Some(task)) => Some(format!("{array}_{task}")),
            _ => self.text("SLURM_JOB_ID").map(str::to_owned),
        }
    }

    fn kubernetes(&self) -> Option<Told> {
        let rank = Some(self.number("JOB_COMPLETION_INDEX")?);
        Some(Told { launcher: Some(Launcher::Kubernetes), rank, ..Told::default() })
    }

    /// The name that launchers give the job. Within a job of Slurm several may run, so the part is named too.
    fn job(&self) -> Option<String> {
        let run = self.text("TORCHELASTIC_RUN_ID").filter(|&id| id != "none").or_else(|| {
            let is_mpi = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK"].iter().any(|rank| self.number(rank).is_some());
            self.text("PMIX_NAMESPACE").filter(|_| is_mpi)
        });
        match (self.slurm_job(), run) {
            (Some(job), Some(run)) => Some(format!("{job}/{run}")),
            (Some(job), None) => Some(match self.slurm_step() {
                Some(step) => format!("{job}.{step}"),
                None => job,
            }),
            (None, run) => run.map(str::to_owned),
        }
    }
}

/// `TF_CONFIG`: a cluster and the task of this process in it.
#[derive(Debug, PartialEq, Eq)]
struct Task {
    role: TaskRole,
    index: u64,
    rank: Option<u64>,
    /// Chief, workers and parameter servers; `None` where no cluster is given.
    size: Option<u64>,
}

impl Task {
    fn of(text: &str) -> Option<Task> {
        let config: Value =
            serde_json::from_str(Some(text).filter(|text| text.len() <= LONGEST_CONFIG)?).ok()?;
        let task = config.get("task")?;
        let role =
            |name: &str| if name == "master" { Some(TaskRole::Chief) } else { TaskRole::of_word(name) };
        let own = role(task.get("type")?.as_str()?)?;
        let index = task.get("index")?.as_u64()?;
        // The tasks of a role are a list, or an object by their numbers.
        let count = |name: &str| -> u64 {
            let tasks = config.get("cluster").and_then(|cluster| cluster.get(name));
            let list = || Some(tasks?.as_array()?.len());
            let object = || Some(tasks?.as_object()?.len());
            list().or_else(object).unwrap_or(0) as u64
        };
        let has_cluster = config.get("cluster").is_some_and(Value::is_object);
        let (chiefs, workers) = (count("chief") + count("master"), count("worker"));
        // The order in which TensorFlow numbers the members of a cluster.
        let before = match own {
            TaskRole::Chief => Some(0),
            TaskRole::Worker => has_cluster.then_some(chiefs),
            TaskRole::ParameterServer => has_cluster.then_some(chiefs + workers),
            // It is beside the cluster.
            TaskRole::Evaluator => None,
        };
        let size = has_cluster.then(|| chiefs + workers + count("ps"));
        Some(Task { role: own, index, rank: before.and_then(|before| before.checked_add(index)), size })
    }

    fn told(&self) -> Told {
        Told { launcher: Some(Launcher::TfConfig), rank: self.rank, world_size: self.size, ..Told::default() }
    }
}

/// A word of a newer version is unknown.
fn known_role<'de, D: Deserializer<'de>>(input: D) -> Result<Option<TaskRole>, D::Error> {
    Ok(Option::<String>::deserialize(input)?.and_then(|word| TaskRole::of_word(&word)))
}

/// A word of a newer version is unknown.
fn known_launcher<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Launcher>, D::Error> {
    Ok(Option::<String>::deserialize(input)?.and_then(|word| Launcher::of_word(&word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], framework: Option<FrameworkRank>) -> RankIdentity {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RankIdentity::of(&variables, framework)
    }

    /// Job, rank, local rank, node, world size, attempt and launcher as one text.
    fn shown(identity: &RankIdentity) -> String {
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        format!(
            "{} {}/{} local {} node {} attempt {} {}",
            identity.job.as_deref().unwrap_or("-"),
            number(identity.rank),
            number(identity.world_size),
            number(identity.local_rank),
            number(identity.node_rank),
            number(identity.attempt),
            identity.launcher.map_or("-", Launcher::word)
        )
    }

    const SLURM: [(&str, &str); 6] = [
        ("SLURM_JOB_ID", "1234"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "5"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_NODEID", "2"),
    ];

    const TORCHRUN: [(&str, &str); 7] = [
        ("RANK", "3"),
        ("LOCAL_RANK", "1"),
        ("GROUP_RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("TORCHELASTIC_RUN_ID", "blue"),
        ("TORCHELASTIC_RESTART_COUNT", "2"),
    ];

    #[test]
    fn each_launcher_tells_the_rank() {
        assert_eq!(shown(&of(&[], None)), "- -/- local - node - attempt - -");
        assert_eq!(shown(&of(&TORCHRUN, None)), "blue 3/4 local 1 node 1 attempt 2 torchrun");
        assert_eq!(of(&TORCHRUN, None).local_world_size, Some(2));
        let plain = [("RANK", "0"), ("WORLD_SIZE", "2")];
        assert_eq!(shown(&of(&plain, None)), "- 0/2 local - node - attempt - rank-variables");
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "6"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
            ("OMPI_COMM_WORLD_NODE_RANK", "2"),
            ("PMIX_NAMESPACE", "prterun-node1-4711@1"),
            ("PMIX_RANK", "6"),
        ];
        assert_eq!(shown(&of(&open_mpi, None)), "prterun-node1-4711@1 6/8 local 2 node - attempt - open-mpi");
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")];
        assert_eq!(shown(&of(&pmi, None)), "- 1/2 local 0 node - attempt - pmix");
        assert_eq!(shown(&of(&SLURM, None)), "1234.0 5/8 local 1 node 2 attempt - slurm");
        let index = [("JOB_COMPLETION_INDEX", "7")];
        assert_eq!(shown(&of(&index, None)), "- 7/- local - node - attempt - kubernetes");
    }

    #[test]
    fn the_innermost_launcher_counts() {
        let both = [SLURM.as_slice(), &TORCHRUN].concat();
        assert_eq!(shown(&of(&both, None)), "1234/blue 3/4 local 1 node 1 attempt 2 torchrun");
        let unnamed = [both.as_slice(), &[("TORCHELASTIC_RUN_ID", "none")]].concat();
        assert_eq!(of(&unnamed, None).job.as_deref(), Some("1234.0"));
        // mpirun within a job of Slurm, where only the daemons are tasks of Slurm.
        let mpi = [
            &SLURM[..1],
            &[("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_SIZE", "8"), ("PMIX_NAMESPACE", "77")],
        ];
        assert_eq!(shown(&of(&mpi.concat(), None)), "1234/77 5/8 local - node - attempt - open-mpi");
        // The next one that gives the same rank knows more.
        let pmix = [SLURM.as_slice(), &[("PMIX_RANK", "5"), ("PMIX_NAMESPACE", "slurm.pmix.1234.0")]];
        assert_eq!(
            shown(&of(&pmix.concat(), None)),
            "1234/slurm.pmix.1234.0 5/8 local 1 node 2 attempt - pmix"
        );
        let with_index = [TORCHRUN.as_slice(), &[("JOB_COMPLETION_INDEX", "1")]].concat();
        assert_eq!(of(&with_index, None).rank, Some(3));
    }

    #[test]
    fn a_batch_script_is_no_task() {
        for step in ["", "4294967291"] {
            let script =
                [SLURM.as_slice(), &[("SLURM_STEP_ID", step), ("SLURM_RESTART_COUNT", "1")]].concat();
            assert_eq!(shown(&of(&script, None)), "1234 -/- local - node - attempt 1 slurm", "{step}");
        }
        let array =
            [SLURM.as_slice(), &[("SLURM_ARRAY_JOB_ID", "1200"), ("SLURM_ARRAY_TASK_ID", "34")]].concat();
        assert_eq!(of(&array, None).job.as_deref(), Some("1200_34.0"));
    }

    #[test]
    fn a_connected_framework_knows_best() {
        let jax = |rank| Some(FrameworkRank { launcher: Launcher::Jax, rank, world_size: Some(8) });
        assert_eq!(shown(&of(&[], jax(1))), "- 1/8 local - node - attempt - jax");
        assert_eq!(shown(&of(&SLURM, jax(5))), "1234.0 5/8 local 1 node 2 attempt - slurm");
        // Processes that one task of Slurm has started.
        assert_eq!(shown(&of(&SLURM, jax(4))), "1234.0 4/8 local - node - attempt - jax");
    }

    #[test]
    fn a_chief_and_a_worker_of_one_index_are_two_ranks() {
        let task = |kind: &str, index: u64| {
            let config = format!(
                r#"{{"cluster":{{"chief":["a:1"],"worker":["b:1","c:1"],"ps":{{"0":"d:1","1":"e:1"}}}},"task":{{"type":"{kind}","index":{index}}}}}"#
            );
            of(&[("TF_CONFIG", &config)], None)
        };
        let ranks: Vec<_> = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)]
            .map(|(kind, index)| task(kind, index).rank)
            .to_vec();
        assert_eq!(ranks, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
        let worker = task("worker", 0);
        assert_eq!((worker.role, worker.task_index), (Some(TaskRole::Worker), Some(0)));
        assert_eq!((worker.world_size, worker.launcher), (Some(5), Some(Launcher::TfConfig)));
        assert_eq!(task("master", 0).role, Some(TaskRole::Chief));
        let evaluator = task("evaluator", 0);
        assert_eq!((evaluator.rank, evaluator.role), (None, Some(TaskRole::Evaluator)));
    }

    #[test]
    fn what_is_no_number_or_task_is_unknown() {
        for value in ["", " ", "-1", "+1", "1.0", "x", "99999999999999999999"] {
            assert_eq!(of(&[("RANK", value), ("WORLD_SIZE", "2")], None).rank, None, "{value}");
        }
        let deep = "[".repeat(1 << 20);
        let cases = [
            "1",
            "{}",
            r#"{"task":1}"#,
            r#"{"task":{"type":"worker"}}"#,
            r#"{"task":{"type":"boss","index":0}}"#,
            r#"{"task":{"type":"worker","index":-1}}"#,
            &deep,
        ];
        for config in cases {
            let found = of(&[("TF_CONFIG", config)], None);
            assert_eq!((found.rank, found.role), (None, None), "{}", &config[..config.len().min(40)]);
        }
        // Nobody says whether there is a chief.
        let alone = of(&[("TF_CONFIG", r#"{"task":{"type":"worker","index":1}}"#)], None);
        assert_eq!((alone.rank, alone.task_index), (None, Some(1)));
        let most =
            format!(r#"{{"cluster":{{"chief":["a"]}},"task":{{"type":"worker","index":{}}}}}"#, u64::MAX);
        assert_eq!(of(&[("TF_CONFIG", &most)], None).rank, None);
    }

    #[test]
    fn the_parent_tells_the_job_the_run_and_labels() {
        let told =
            [SLURM.as_slice(), &[(JOB, "mine"), (RUN_NAME, "node-1-2"), (LABELS, r#"{"team":"vision"}"#)]];
        let found = of(&told.concat(), None);
        assert_eq!((found.job.as_deref(), found.run.as_deref()), (Some("mine"), Some("node-1-2")));
        assert_eq!(found.labels["team"], "vision");
        assert!(of(&[(LABELS, "[1")], None).labels.is_empty());
    }

    #[test]
    fn what_is_written_is_read() {
        let written = of(&SLURM, None);
        let text = serde_json::to_string(&written).unwrap();
        assert!(text.contains(r#""launcher":"slurm""#), "{text}");
        assert_eq!(serde_json::from_str::<RankIdentity>(&text).unwrap(), written);
        let newer = r#"{"launcher":"by-pigeon","role":null,"added":[1]}"#;
        assert_eq!(serde_json::from_str::<RankIdentity>(newer).unwrap(), RankIdentity::default());
    }

    #[test]
    fn names_are_listed_once() {
        let mut names = VARIABLES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), VARIABLES.len());
    }
}
