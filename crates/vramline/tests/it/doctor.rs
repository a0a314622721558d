//! What `vramline doctor` says of machines that are put together here: each trap with its reason and its switch.

use std::collections::{BTreeMap, BTreeSet};

use vramline::analysis;
use vramline::analysis::doctor::{DeepLook, DeviceLook, DriverLook, MachineLook, PythonLook};
use vramline::source::driver::probe::{Cost, Costs};
use vramline::source::driver::{
    DeviceFacts, DeviceMemory, DeviceProcess, DriverError, Identity, Library, Part, Work,
};
use vramline::source::procfs::{HostMemory, Namespace};
use vramline::units::Bytes;
use vramline::view::doctor::{Doctor, Measure};

use crate::document::paths;

pub(crate) fn device(index: u32) -> DeviceLook {
    let memory =
        DeviceMemory { total: Bytes(1000), reserved: Bytes(100), free: Bytes(600), used: Bytes(300) };
    DeviceLook {
        facts: DeviceFacts {
            index,
            uuid: format!("GPU-{index}"),
            name: Some("NVIDIA H200".to_owned()),
            capability: Some((9, 0)),
            is_divided: Some(false),
            is_accounting: Some(false),
            ..DeviceFacts::default()
        },
        memory: Ok(memory),
        processes: Ok(vec![DeviceProcess { pid: 7, used: Some(Bytes(300)), work: Work::Compute }]),
        seen_here: vec![7],
    }
}

pub(crate) fn machine(devices: Vec<DeviceLook>) -> MachineLook {
    let packages = [
        ("tensorflow", "2.21.0"),
        ("jax", "0.11.2"),
        ("jax-cuda13-plugin", "0.11.2"),
        ("torch", "2.11.0+cu130"),
    ];
    let cost = Cost { calls: 5, nanos: 35_000, longest_nanos: 9_000, ..Cost::default() };
    MachineLook {
        driver: Ok(DriverLook {
            library: Library {
                driver_version: Some("580.1".to_owned()),
                nvml_version: Some("13.580.1".to_owned()),
            },
            cuda: Ok("13.0".to_owned()),
            devices,
            costs: Costs { start: cost, memory: cost, processes: cost },
        }),
        host: Some(HostMemory { total: Bytes(64 << 30), available: Bytes(50 << 30) }),
        container_limit: None,
        namespace: Namespace { own_pids: vec![42], is_outermost: Some(true) },
        is_wsl: false,
        environment: BTreeMap::new(),
        python: Ok(PythonLook {
            executable: "/usr/bin/python3".to_owned(),
            version: (3, 12, 1),
            packages: packages
                .iter()
                .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
                .collect(),
            ..PythonLook::default()
        }),
        no_boot: None,
    }
}

fn doctor(machine: &MachineLook) -> Doctor {
    Doctor::from(&analysis::doctor::doctor(machine))
}

/// The answers of a code.
fn answers(document: &Doctor, code: &str) -> Vec<Measure> {
    let found: Vec<Measure> =
        document.measures.iter().filter(|measure| measure.code == code).cloned().collect();
    assert!(!found.is_empty(), "no {code} in {:?}", document.measures);
    found
}

fn answer(machine: &MachineLook, code: &str) -> (Option<bool>, String, String) {
    let found = answers(&doctor(machine), code).remove(0);
    (found.can, found.why.unwrap_or_default(), found.switch.unwrap_or_default())
}

#[test]
fn a_machine_in_order() {
    let document = doctor(&machine(vec![device(0), device(1)]));
    assert_eq!(document.devices[1].visible_as.as_deref(), Some("GPU:1"));
    assert_eq!(document.devices[0].identity, Some(Identity::UsedExcludesReserved));
    assert_eq!(document.driver.memory_call_ns, Some(7_000));
    for code in ["device-memory", "process-memory", "gpu-build", "events", "counters"] {
        let fine = answers(&document, code).into_iter().filter(|found| found.subject != "TensorFlow 2.21.0");
        assert!(fine.into_iter().all(|found| found.can == Some(true)), "{code}");
    }
    let off = answers(&document, "process-peak");
    assert_eq!(off.len(), 2);
    assert_eq!(off[1].switch.as_deref(), Some("nvidia-smi -i 1 -am 1 (as root)"));
    // What is not certain says how it would be.
    let tensorflow = answers(&document, "gpu-build").remove(0);
    assert_eq!((tensorflow.can, tensorflow.switch.unwrap().contains("--deep")), (None, true));
}

#[test]
fn every_no_has_a_reason() {
    let mut traps = vec![machine(vec![device(0)]), machine(Vec::new())];
    for error in [
        DriverError::LibraryMissing { detail: "no file".to_owned() },
        DriverError::LibraryTooOld { function: "nvmlX".to_owned() },
        DriverError::DriverNotLoaded,
        DriverError::VersionMismatch,
        DriverError::NoPermission,
    ] {
        traps.push(MachineLook { driver: Err(error), ..machine(Vec::new()) });
    }
    for machine in traps {
        for measure in doctor(&machine).measures {
            assert!(
                measure.can == Some(true) || measure.why.as_ref().is_some_and(|why| !why.is_empty()),
                "{measure:?}"
            );
        }
    }
}

#[test]
fn processes_in_a_container() {
    let nested = |look: DeviceLook| MachineLook {
        namespace: Namespace { own_pids: vec![42], is_outermost: Some(false) },
        ..machine(vec![look])
    };
    assert_eq!(answer(&nested(device(0)), "process-memory").0, Some(true), "not visible here");
    let foreign = nested(DeviceLook { seen_here: Vec::new(), ..device(0) });
    let (can, why, switch) = answer(&foreign, "process-memory");
    assert_eq!(can, Some(false));
    assert!(why.contains("another namespace") && switch.contains("--pid=host"), "{why} {switch}");
    let empty = nested(DeviceLook { processes: Ok(Vec::new()), seen_here: Vec::new(), ..device(0) });
    assert_eq!(answer(&empty, "process-memory").0, None);
    let silent = DeviceProcess { pid: 7, used: None, work: Work::Compute };
    let silent = machine(vec![DeviceLook { processes: Ok(vec![silent]), ..device(0) }]);
    assert!(answer(&silent, "process-memory").1.contains("N/A"));
    let closed = machine(vec![DeviceLook { processes: Err(DriverError::NoPermission), ..device(0) }]);
    let document = doctor(&closed);
    assert!(document.unknowns.iter().any(|unknown| unknown.path == "devices[0].processes"));
}

/// Its driver lists nothing, lists processes without figures, or refuses; and where one day it answers, that counts.
#[test]
fn processes_under_wsl() {
    let silent = DeviceProcess { pid: 7, used: None, work: Work::Compute };
    for processes in [Ok(Vec::new()), Ok(vec![silent]), Err(DriverError::NotSupported)] {
        let machine = MachineLook { is_wsl: true, ..machine(vec![DeviceLook { processes, ..device(0) }]) };
        let (can, why, _) = answer(&machine, "process-memory");
        assert_eq!(can, Some(false));
        assert!(why.starts_with("under WSL2 the driver does not report which process"), "{why}");
        assert_eq!(answer(&machine, "device-memory").0, Some(true));
    }
    let answering = MachineLook { is_wsl: true, ..machine(vec![device(0)]) };
    assert_eq!(answer(&answering, "process-memory").0, Some(true));
}

#[test]
fn devices_that_tell_little() {
    let unified = machine(vec![DeviceLook { memory: Err(DriverError::NotSupported), ..device(0) }]);
    assert!(answer(&unified, "device-memory").1.contains("shares its memory with the CPU"));
    assert!(doctor(&unified).unknowns.iter().any(|unknown| unknown.path == "devices[0].total_bytes"));
    let lost = machine(vec![DeviceLook {
        memory: Err(DriverError::GpuLost),
        processes: Err(DriverError::GpuLost),
        ..device(0)
    }]);
    assert!(answer(&lost, "device-memory").2.contains("Xid"));
    let odd = DeviceMemory { total: Bytes(1000), reserved: Bytes(1), free: Bytes(1), used: Bytes(1) };
    assert_eq!(answer(&machine(vec![DeviceLook { memory: Ok(odd), ..device(0) }]), "device-memory").0, None);
    let mut slow = machine(vec![device(0)]);
    if let Ok(look) = &mut slow.driver {
        look.costs.processes =
            Cost { calls: 1, nanos: 5_000_000, longest_nanos: 5_000_000, ..Cost::default() };
    }
    assert!(answer(&slow, "slow-process-list").1.contains("5.00 ms"));
}

#[test]
fn what_a_job_would_see() {
    let mut hidden = machine(vec![device(0), device(1)]);
    hidden.environment.insert("CUDA_VISIBLE_DEVICES".to_owned(), "1".to_owned());
    let document = doctor(&hidden);
    assert_eq!(document.devices[0].visible_as, None);
    assert_eq!(document.devices[1].visible_as.as_deref(), Some("GPU:0"));
    assert_eq!(answers(&document, "hidden-device").len(), 1);
    let mut other = device(1);
    other.facts.name = Some("NVIDIA T4".to_owned());
    let mixed = machine(vec![device(0), other]);
    assert_eq!(answer(&mixed, "device-order").2, "CUDA_DEVICE_ORDER=PCI_BUS_ID");
}

#[test]
fn asynchronous_pools_blind_the_profilers() {
    for (name, value, subject) in [
        ("TF_GPU_ALLOCATOR", "cuda_malloc_async", "TensorFlow 2.21.0"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "JAX 0.11.2"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64, backend:cudaMallocAsync", "PyTorch 2.11.0+cu130"),
        ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "PyTorch 2.11.0+cu130"),
    ] {
        let mut blind = machine(vec![device(0)]);
        blind.environment.insert(name.to_owned(), value.to_owned());
        let found = answers(&doctor(&blind), "async-allocator");
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!((found[0].subject.as_str(), found[0].can), (subject, Some(false)));
        assert!(found[0].switch.as_ref().unwrap().contains(name), "{found:?}");
    }
    let mut platform = machine(vec![device(0)]);
    platform.environment.insert("XLA_PYTHON_CLIENT_ALLOCATOR".to_owned(), "platform".to_owned());
    assert_eq!(answer(&platform, "platform-allocator").0, Some(false));
}

#[test]
fn pythons_that_cannot_be_reached() {
    let with = |change: fn(&mut PythonLook)| {
        let mut found = machine(vec![device(0)]);
        if let Ok(python) = &mut found.python {
            change(python);
        }
        found
    };
    assert!(answer(&with(|python| python.isolated = true), "python-flags").1.contains("-I"));
    assert!(answer(&with(|python| python.no_site = true), "python-flags").1.contains("-S"));
    assert!(answer(&with(|python| python.version = (3, 8, 0)), "python-version").1.contains("3.8"));
    assert_eq!(answer(&with(|_| ()), "package-elsewhere").0, Some(true));
    let installed =
        |python: &mut PythonLook| drop(python.packages.insert("vramline".to_owned(), "0.1.0".to_owned()));
    assert_eq!(answer(&with(installed), "attach").0, Some(true));
    let bare = MachineLook { no_boot: Some("the package was not found".to_owned()), ..machine(Vec::new()) };
    assert_eq!(answer(&bare, "package").0, Some(false));
    let silent = MachineLook { python: Err("it does not answer".to_owned()), ..machine(Vec::new()) };
    assert_eq!(answer(&silent, "python").0, None);
    assert!(doctor(&silent).frameworks.is_empty());
}

#[test]
fn frameworks_without_support_for_gpus() {
    let with = |packages: &[(&str, &str)], deep: &[(&str, DeepLook)]| {
        let mut found = machine(vec![device(0)]);
        if let Ok(python) = &mut found.python {
            python.packages =
                packages.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
            python.deep = deep.iter().map(|(name, look)| ((*name).to_owned(), look.clone())).collect();
        }
        doctor(&found)
    };
    for package in [("tensorflow-cpu", "2.21.0"), ("torch", "2.11.0+cpu"), ("jax", "0.11.2")] {
        let document = with(&[package], &[]);
        assert_eq!(document.frameworks[0].gpu, Some(false), "{package:?}");
        assert!(answers(&document, "no-gpu-build")[0].switch.is_some());
    }
    let deep =
        |is_built, gpus, error: Option<&str>| DeepLook { is_built, gpus, error: error.map(str::to_owned) };
    for (look, expected) in [
        (deep(Some(true), Some(1), None), Some(true)),
        (deep(Some(true), Some(0), None), Some(false)),
        (deep(Some(false), None, None), Some(false)),
        (deep(None, None, Some("ImportError: x")), None),
    ] {
        let document = with(&[("tensorflow", "2.21.0")], &[("tensorflow", look)]);
        assert_eq!(document.frameworks[0].gpu, expected, "{:?}", document.frameworks);
    }
    // Without a GPU TensorFlow's pool on the CPU stands in, unless that is switched off.
    let mut cpu = machine(Vec::new());
    assert_eq!(answer(&cpu, "stand-in").0, Some(true));
    cpu.environment.insert("TF_CPU_ALLOCATOR_USE_BFC".to_owned(), "0".to_owned());
    assert_eq!(answer(&cpu, "no-stand-in").0, Some(false));
}

#[test]
fn every_field_is_in_the_table() {
    let mut found = BTreeSet::new();
    let mut part = device(0);
    part.facts.part = Some(Part { index: 0, of: "GPU-1".to_owned() });
    let full = MachineLook { container_limit: Some(Bytes(1)), ..machine(vec![device(0), part]) };
    for machine in [full, MachineLook { driver: Err(DriverError::DriverNotLoaded), ..machine(Vec::new()) }] {
        paths(&serde_json::to_value(doctor(&machine)).unwrap(), "", &mut found);
    }
    let table: BTreeSet<String> = crate::table::<Doctor>();
    let is_list = |path: &String| ["devices", "frameworks", "warnings", "unknowns"].contains(&path.as_str());
    let missing: Vec<_> = found.iter().filter(|path| !table.contains(*path) && !is_list(path)).collect();
    assert!(missing.is_empty(), "in a document but not in the table: {missing:?}");
    let unused: Vec<_> =
        table.iter().filter(|path| !found.contains(*path) && !path.starts_with("warnings")).collect();
    assert!(unused.is_empty(), "in the table but in no document: {unused:?}");
}
