//! The environment of the job: launch settings as variables of TensorFlow, JAX and PyTorch, and the settings for Vramline's Python
//! side inside the job.
//!
//! A variable that the user has set is never changed. An option that would need another value is refused, so that neither is
//! overridden silently. The names are in `variables`.

use std::ffi::OsString;
use std::path::Path;

use vramline::recording::manifest::StandIn;

use crate::exit::Failure;
use crate::launch::spec::{JobSpec, MIB};
use crate::launch::values::{Allocator, Switch, Variables};
use crate::variables::{
    ALLOCATOR, CUDA_VISIBLE_DEVICES, GROWTH, LIMIT, RATE, STAND_IN, STEP_PEAKS, STOP, TF_CPU_BFC,
    TF_CPU_BFC_LIMIT, TF_FORCE_GPU_ALLOW_GROWTH, TF_GPU_ALLOCATOR, TORCH_CONF, TRACE, TRACE_SECONDS,
    UNTIL_OOM, XLA_ALLOCATOR, XLA_FRACTIONS, XLA_PREALLOCATE,
};

/// The variables of this process, which the job inherits.
pub(crate) fn of_user() -> Variables {
    let text = |value: OsString| value.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// The variables that are set for the job in addition to the inherited ones.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) set: Variables,
    pub(crate) stand_in: StandIn,
    /// Whether the limit is applied inside the process, because no variable can set it.
    pub(crate) limits_inside: bool,
    /// Notes to print before the job starts.
    pub(crate) notes: Vec<String>,
}

/// Turns settings into variables. Refuses settings that conflict with the user's variables.
pub(crate) fn plan(spec: &JobSpec<'_>, user: &Variables, has_device: bool) -> Result<Planned, Failure> {
    let mut set = to_python(spec);
    let mut wish = |option: &str, name: &str, value: &str, is_same: fn(&str, &str) -> bool| {
        match user.get(name).filter(|found| !found.is_empty() || name == CUDA_VISIBLE_DEVICES) {
            Some(found) if is_same(found, value) => {}
            Some(found) => return Err(conflict(option, name, found)),
            None => drop(set.insert(name.to_owned(), value.to_owned())),
        }
        Ok(())
    };
    if let Some(gpus) = &spec.gpus {
        wish(&format!("--gpus {gpus}"), CUDA_VISIBLE_DEVICES, &gpus.variable(), |found, wanted| {
            found.replace(' ', "") == wanted || (hides_all(found) && hides_all(wanted))
        })?;
    }
    if let Some(growth) = spec.growth {
        let option = format!("--growth {}", growth.word());
        let (grows, preallocates) = if growth == Switch::On { ("true", "false") } else { ("false", "true") };
        wish(&option, TF_FORCE_GPU_ALLOW_GROWTH, grows, str::eq)?;
        wish(&option, XLA_PREALLOCATE, preallocates, |found, wanted| {
            matches!(found, "false" | "False" | "0") == (wanted == "false")
        })?;
    }
    if let Some(allocator) = spec.allocator {
        let option = format!("--allocator {}", allocator.word());
        let jax = |found: &str, wanted: &str| found.eq_ignore_ascii_case(wanted);
        match allocator {
            Allocator::Default => {
                for (name, usual) in [(TF_GPU_ALLOCATOR, &[][..]), (XLA_ALLOCATOR, &["default", "bfc"][..])] {
                    if let Some(found) = user.get(name).filter(|found| !found.is_empty())
                        && !usual.contains(&found.to_lowercase().as_str())
                    {
                        return Err(conflict(&option, name, found));
                    }
                }
            }
            Allocator::Async => {
                wish(&option, TF_GPU_ALLOCATOR, "cuda_malloc_async", str::eq)?;
                wish(&option, XLA_ALLOCATOR, "cuda_async", jax)?;
            }
            Allocator::Platform => wish(&option, XLA_ALLOCATOR, "platform", jax)?,
            Allocator::Expandable => {}
        }
        if let Some((name, value)) = torch_conf(&option, allocator, user)? {
            set.insert(name.to_owned(), value);
        }
    }
    let is_hidden = match &spec.gpus {
        Some(gpus) => gpus.is_none(),
        None => user.get(CUDA_VISIBLE_DEVICES).is_some_and(|found| hides_all(found)),
    };
    let is_visible = has_device && !is_hidden;
    let stand_in = stand_in(spec, user, is_visible);
    if stand_in == StandIn::SwitchedOn {
        set.extend([(TF_CPU_BFC.to_owned(), "1".to_owned()), (STAND_IN.to_owned(), "1".to_owned())]);
    }
    let mut planned = Planned { set, stand_in, limits_inside: false, notes: Vec::new() };
    limit(spec, user, is_visible, &mut planned)?;
    if stand_in == StandIn::SwitchedOn {
        planned.notes.push(format!(
            "no GPU is visible, so TensorFlow's pool allocator is switched on for the CPU ({TF_CPU_BFC}=1; off: --no-stand-in)"
        ));
    }
    if !is_visible && (spec.growth.is_some() || spec.allocator.is_some()) {
        planned.notes.push("no GPU is visible, so --growth and --allocator have no effect".to_owned());
    }
    Ok(planned)
}

/// The settings for the Python side. The folder of the recording is added later.
fn to_python(spec: &JobSpec<'_>) -> Variables {
    let settings = [
        (TRACE, Some(spec.trace.to_string())),
        (TRACE_SECONDS, Some(spec.trace_seconds.to_string())),
        (UNTIL_OOM, Some(spec.until_oom.word().to_owned())),
        (RATE, Some(spec.rate.to_string())),
        (STEP_PEAKS, spec.step_peaks.then(|| "1".to_owned())),
        (STOP, spec.stop.map(|stop| stop.to_string())),
        (LIMIT, spec.limit.map(|limit| limit.0.to_string())),
        (GROWTH, spec.growth.map(|growth| growth.word().to_owned())),
        (ALLOCATOR, spec.allocator.map(|allocator| allocator.word().to_owned())),
    ];
    settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn stand_in(spec: &JobSpec<'_>, user: &Variables, is_visible: bool) -> StandIn {
    match user.get(TF_CPU_BFC).map(|value| value.to_lowercase()).as_deref() {
        Some("1" | "true") => StandIn::OnByUser,
        Some(_) => StandIn::OffByUser,
        None if is_visible => StandIn::NotNeeded,
        None if !spec.stand_in => StandIn::Prevented,
        None => StandIn::SwitchedOn,
    }
}

/// Sets the limit: inside the process on a GPU, by a variable for TensorFlow's pool on the CPU.
fn limit(
    spec: &JobSpec<'_>,
    user: &Variables,
    is_visible: bool,
    planned: &mut Planned,
) -> Result<(), Failure> {
    let Some(limit) = spec.limit else { return Ok(()) };
    if is_visible {
        planned.limits_inside = true;
        // JAX has one limit only, which these variables set.
        for name in XLA_FRACTIONS {
            if let Some(found) = user.get(name).filter(|found| !found.is_empty()) {
                return Err(conflict("--limit", name, found));
            }
        }
    } else if planned.stand_in.is_on() {
        let whole = (limit.0 / MIB.0).to_string();
        match user.get(TF_CPU_BFC_LIMIT).filter(|found| !found.is_empty()) {
            Some(found) if *found != whole => return Err(conflict("--limit", TF_CPU_BFC_LIMIT, found)),
            Some(_) => {}
            None => drop(planned.set.insert(TF_CPU_BFC_LIMIT.to_owned(), whole)),
        }
    } else {
        planned.notes.push(
            "no GPU is visible and TensorFlow's pool on the CPU is off, so --limit has no effect".to_owned(),
        );
    }
    Ok(())
}

fn conflict(option: &str, name: &str, found: &str) -> Failure {
    let word = option.split(' ').next().unwrap_or(option);
    Failure::usage(
        format!("{option} conflicts with {name}={found} in the environment"),
        format!("unset {name}, or leave out {word}"),
    )
}

/// Whether the value hides every device: CUDA ignores the list from the first unknown device on.
fn hides_all(devices: &str) -> bool {
    let first = devices.split(',').next().unwrap_or_default().trim();
    first.is_empty() || first.starts_with('-')
}

/// The variable for PyTorch's settings and its new value, with the setting for `allocator` added; `None` if nothing changes.
fn torch_conf(
    option: &str,
    allocator: Allocator,
    user: &Variables,
) -> Result<Option<(&'static str, String)>, Failure> {
    // PyTorch reads one of these variables only: a second one could hide the user's.
    let (name, found) = TORCH_CONF
        .into_iter()
        .find_map(|name| user.get(name).map(|found| (name, found.as_str())))
        .unwrap_or((TORCH_CONF[0], ""));
    let backend = value_of(found, "backend").unwrap_or("native");
    let is_expandable = value_of(found, "expandable_segments").map(|value| value == "True");
    let (fits, wanted) = match allocator {
        Allocator::Platform => return Ok(None),
        Allocator::Default => (backend == "native" && is_expandable != Some(true), None),
        Allocator::Async => (
            (value_of(found, "backend").is_none() || backend == "cudaMallocAsync")
                && is_expandable != Some(true),
            (backend != "cudaMallocAsync").then_some("backend:cudaMallocAsync"),
        ),
        Allocator::Expandable => (
            backend == "native" && is_expandable != Some(false),
            is_expandable.is_none().then_some("expandable_segments:True"),
        ),
    };
    if !fits {
        return Err(conflict(option, name, found));
    }
    let joined =
        |wanted: &str| if found.trim().is_empty() { wanted.to_owned() } else { format!("{found},{wanted}") };
    Ok(wanted.map(|wanted| (name, joined(wanted))))
}

/// The value of `key` in `key:value,key:[value,value],...`.
fn value_of<'a>(conf: &'a str, key: &str) -> Option<&'a str> {
    conf.split(',')
        .filter_map(|pair| pair.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, v)| v.trim())
}

/// Puts `boot` in front of Python's path. An empty path adds nothing, because an empty part means the current folder. If an outer
/// `vramline run` has added `boot` already, it is removed first.
pub(crate) fn python_path(boot: &Path, before: Option<OsString>) -> OsString {
    let mut path = OsString::from(boot);
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        for part in std::env::split_paths(&before).filter(|part| part != boot) {
            path.push(":");
            path.push(part);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn spec(options: &[&str]) -> JobSpec<'static> {
        let mut spec = JobSpec::default();
        let mut words = options.iter().copied();
        while let Some(option) = words.next() {
            let mut value = || words.next().unwrap();
            match option {
                "--gpus" => spec.gpus = Some(value().parse().unwrap()),
                "--growth" => spec.growth = Some(Switch::from_str(value(), false).unwrap()),
                "--allocator" => spec.allocator = Some(Allocator::from_str(value(), false).unwrap()),
                "--limit" => spec.limit = Some(value().parse().unwrap()),
                "--trace" => spec.trace = value().parse().unwrap(),
                "--step-peaks" => spec.step_peaks = true,
                "--no-stand-in" => spec.stand_in = false,
                other => panic!("{other}"),
            }
        }
        spec
    }

    fn planned(options: &[&str], user: &[(&str, &str)], has_device: bool) -> Result<Planned, String> {
        let user = user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        plan(&spec(options), &user, has_device).map_err(|refused| format!("{refused:?}"))
    }

    /// The variables of frameworks that are set on a machine with a GPU, as one text.
    fn set(options: &[&str], user: &[(&str, &str)]) -> String {
        let set = planned(options, user, true).unwrap().set.into_iter();
        let ours = set.filter(|(name, _)| !name.starts_with("VRAMLINE_"));
        ours.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn settings_reach_every_framework() {
        assert_eq!(set(&[], &[]), "");
        assert_eq!(set(&["--gpus", "1,0"], &[]), "CUDA_VISIBLE_DEVICES=1,0");
        assert_eq!(
            set(&["--growth", "on"], &[]),
            "TF_FORCE_GPU_ALLOW_GROWTH=true XLA_PYTHON_CLIENT_PREALLOCATE=false"
        );
        assert_eq!(
            set(&["--growth", "off"], &[("XLA_PYTHON_CLIENT_PREALLOCATE", "1")]),
            "TF_FORCE_GPU_ALLOW_GROWTH=false"
        );
        assert_eq!(
            set(&["--allocator", "async"], &[]),
            "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync TF_GPU_ALLOCATOR=cuda_malloc_async \
             XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async"
        );
        assert_eq!(set(&["--allocator", "platform"], &[]), "XLA_PYTHON_CLIENT_ALLOCATOR=platform");
        assert_eq!(
            set(&["--allocator", "expandable"], &[]),
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        );
        assert_eq!(set(&["--allocator", "default"], &[("XLA_PYTHON_CLIENT_ALLOCATOR", "BFC")]), "");
    }

    #[test]
    fn python_gets_the_settings() {
        let set =
            planned(&["--limit", "1.5GiB", "--step-peaks", "--trace", "steps=3"], &[], true).unwrap().set;
        let found: Vec<_> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            found,
            [
                "VRAMLINE_LIMIT=1610612736",
                "VRAMLINE_RATE=10",
                "VRAMLINE_STEP_PEAKS=1",
                "VRAMLINE_TRACE=steps=3",
                "VRAMLINE_TRACE_SECONDS=60",
                "VRAMLINE_UNTIL_OOM=auto"
            ]
        );
    }

    #[test]
    fn the_users_settings_of_pytorch_stay() {
        let torch = |allocator: &str, name: &str, conf: &str| {
            let user = [
                (name, conf),
                ("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
                ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"),
            ];
            set(&["--allocator", allocator], &user)
        };
        let (cuda, any) = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF");
        let rounding = "roundup_power2_divisions:[256:1,512:2],max_split_size_mb:64";
        assert_eq!(torch("async", cuda, rounding), format!("{cuda}={rounding},backend:cudaMallocAsync"));
        assert_eq!(torch("expandable", any, rounding), format!("{any}={rounding},expandable_segments:True"));
        assert_eq!(torch("async", cuda, "backend:cudaMallocAsync"), "");
        assert_eq!(torch("expandable", cuda, "expandable_segments:True"), "");
    }

    #[test]
    fn options_do_not_override_the_user() {
        let cases: [(&[&str], (&str, &str)); 13] = [
            (&["--gpus", "0"], ("CUDA_VISIBLE_DEVICES", "1")),
            (&["--gpus", "0"], ("CUDA_VISIBLE_DEVICES", "")),
            (&["--gpus", "none"], ("CUDA_VISIBLE_DEVICES", "0")),
            (&["--growth", "on"], ("TF_FORCE_GPU_ALLOW_GROWTH", "false")),
            (&["--growth", "on"], ("XLA_PYTHON_CLIENT_PREALLOCATE", "true")),
            (&["--allocator", "async"], ("TF_GPU_ALLOCATOR", "cuda_malloc")),
            (&["--allocator", "platform"], ("XLA_PYTHON_CLIENT_ALLOCATOR", "bfc")),
            (&["--allocator", "async"], ("PYTORCH_CUDA_ALLOC_CONF", "backend:native")),
            (&["--allocator", "async"], ("PYTORCH_ALLOC_CONF", "expandable_segments:True")),
            (&["--allocator", "expandable"], ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")),
            (&["--allocator", "expandable"], ("PYTORCH_CUDA_ALLOC_CONF", "a:1, expandable_segments:False")),
            (&["--allocator", "default"], ("TF_GPU_ALLOCATOR", "cuda_malloc_async")),
            (&["--limit", "8GiB"], ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")),
        ];
        for (options, (name, value)) in cases {
            let refused = planned(options, &[(name, value)], true).unwrap_err();
            assert!(refused.contains(&format!("{name}={value}")), "{refused}");
            assert!(refused.contains(options[0]) && refused.contains("unset"), "{refused}");
        }
        assert_eq!(set(&["--gpus", "0,1"], &[("CUDA_VISIBLE_DEVICES", "0, 1")]), "");
        assert_eq!(set(&["--gpus", "none", "--no-stand-in"], &[("CUDA_VISIBLE_DEVICES", "")]), "");
    }

    #[test]
    fn the_cpu_pool_is_switched_on_without_a_gpu() {
        let how = |options: &[&str], user: &[(&str, &str)], has_device: bool| {
            let planned = planned(options, user, has_device).unwrap();
            assert_eq!(planned.set.contains_key(TF_CPU_BFC), planned.stand_in == StandIn::SwitchedOn);
            planned.stand_in
        };
        assert_eq!(how(&[], &[], true), StandIn::NotNeeded);
        assert_eq!(how(&[], &[], false), StandIn::SwitchedOn);
        assert_eq!(how(&["--no-stand-in"], &[], false), StandIn::Prevented);
        assert_eq!(how(&["--gpus", "none"], &[], true), StandIn::SwitchedOn);
        for hidden in ["", "-1", " -1 ", "-1,0"] {
            assert_eq!(how(&[], &[("CUDA_VISIBLE_DEVICES", hidden)], true), StandIn::SwitchedOn);
        }
        assert_eq!(how(&[], &[("CUDA_VISIBLE_DEVICES", "0")], true), StandIn::NotNeeded);
        assert_eq!(how(&[], &[("TF_CPU_ALLOCATOR_USE_BFC", "true")], false), StandIn::OnByUser);
        assert_eq!(how(&[], &[("TF_CPU_ALLOCATOR_USE_BFC", "0")], false), StandIn::OffByUser);
    }

    #[test]
    fn a_limit_is_whole_mebibytes_on_the_stand_in() {
        let limit = |user: &[(&str, &str)]| planned(&["--limit", "1610612735"], user, false);
        assert_eq!(limit(&[]).unwrap().set[TF_CPU_BFC_LIMIT], "1535");
        assert!(!limit(&[(TF_CPU_BFC_LIMIT, "1535")]).unwrap().set.contains_key(TF_CPU_BFC_LIMIT));
        assert!(
            limit(&[(TF_CPU_BFC_LIMIT, "1536")]).unwrap_err().contains("TF_CPU_BFC_MEM_LIMIT_IN_MB=1536")
        );
        let off = limit(&[("TF_CPU_ALLOCATOR_USE_BFC", "0")]).unwrap();
        assert!(!off.set.contains_key(TF_CPU_BFC_LIMIT) && off.notes[0].contains("--limit has no effect"));
    }

    #[test]
    fn the_path_of_python_keeps_its_order() {
        let path = |before: Option<&str>| python_path(Path::new("/p/_boot"), before.map(OsString::from));
        assert_eq!(path(None), "/p/_boot");
        assert_eq!(path(Some("")), "/p/_boot");
        assert_eq!(path(Some("a::b")), "/p/_boot:a::b");
        assert_eq!(path(Some("/p/_boot:a")), "/p/_boot:a");
    }
}
