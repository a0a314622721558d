//! The driver for Python. It is opened on first use, once per process, and never while the program forks.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use serde_json::json;
use vramline::source::driver::own::{self, NotTold};
use vramline::source::driver::probe::Probe;
use vramline::source::driver::visible::visible;
use vramline::source::driver::{DriverError, open};
use vramline::source::procfs;

use crate::forking::between_forks;

type Opened = (u32, Result<Probe, DriverError>);

static DRIVER: Mutex<Option<Opened>> = Mutex::new(None);

/// Total, reserved, free and used bytes, and what this process holds; why the first four are unknown, and why the last is.
type DriverAnswer = ([Option<u64>; 5], Option<String>, Option<String>);

fn ask<T: Send>(
    py: Python<'_>,
    script: Option<PathBuf>,
    call: impl FnOnce(&mut Result<Probe, DriverError>) -> T + Send,
) -> T {
    py.detach(|| {
        between_forks(|| {
            let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
            let own = std::process::id();
            if driver.as_ref().is_none_or(|(pid, _)| *pid != own) {
                // What a parent process opened belongs to the parent. Do not close it: the library counts its users.
                std::mem::forget(driver.take());
            }
            let (_, probe) = driver.get_or_insert_with(|| (own, Probe::open(|| open(script.as_deref()))));
            call(probe)
        })
    })
}

/// Returns facts about the driver and its devices as JSON.
#[pyfunction]
#[pyo3(signature = (script=None))]
pub(crate) fn driver_json(py: Python<'_>, script: Option<PathBuf>) -> String {
    ask(py, script, |probe| match probe {
        Ok(probe) => json!({"library": probe.library(), "devices": probe.devices(), "costs": probe.costs()}),
        Err(error) => {
            json!({"error": error.to_string(), "code": error.code(), "hint": error.hint(), "devices": []})
        }
    })
    .to_string()
}

/// Returns the UUID of the device that has CUDA's number `ordinal` according to the environment, and whether that is certain.
#[pyfunction]
#[pyo3(signature = (ordinal, list=None, order=None, script=None))]
pub(crate) fn driver_visible(
    py: Python<'_>,
    ordinal: usize,
    list: Option<String>,
    order: Option<String>,
    script: Option<PathBuf>,
) -> (Option<String>, bool) {
    ask(py, script, |probe| {
        let Ok(probe) = probe else { return (None, false) };
        let seen = visible(probe.devices(), list.as_deref(), order.as_deref());
        let device = seen.devices.get(ordinal).and_then(|&at| probe.devices().get(at));
        (device.map(|facts| facts.uuid.clone()), seen.is_sure)
    })
}

/// Returns the memory of a device. It is found by the end of its UUID, because CUDA and the driver use different prefixes.
#[pyfunction]
#[pyo3(signature = (uuid, script=None))]
pub(crate) fn driver_memory(py: Python<'_>, uuid: String, script: Option<PathBuf>) -> DriverAnswer {
    ask(py, script, |probe| {
        let probe = match probe {
            Ok(probe) => probe,
            Err(error) => {
                return ([None; 5], Some(said(&NotTold::from(&*error))), Some(said(&NotTold::from(&*error))));
            }
        };
        let Some(at) = probe.devices().iter().position(|facts| facts.uuid.ends_with(&uuid)) else {
            let reason = format!("the driver has no device with UUID {uuid}");
            return ([None; 5], Some(reason.clone()), Some(reason));
        };
        let (memory, held) = (probe.memory(at), own::held(probe, at));
        let figure =
            |pick: fn(&vramline::source::driver::DeviceMemory) -> u64| memory.as_ref().ok().map(pick);
        let figures = [
            figure(|memory| memory.total.0),
            figure(|memory| memory.reserved.0),
            figure(|memory| memory.free.0),
            figure(|memory| memory.used.0),
            held.as_ref().ok().map(|bytes| bytes.0),
        ];
        let why = memory.as_ref().err().map(|error| said(&NotTold::from(error)));
        (figures, why, held.err().map(|why| said(&why)))
    })
}

fn said(why: &NotTold) -> String {
    if why.switch.is_empty() { why.reason.clone() } else { format!("{}; {}", why.reason, why.switch) }
}

/// Returns the total and the available host memory in bytes; `None` if they are unknown.
#[pyfunction]
pub(crate) fn host_memory() -> Option<(u64, u64)> {
    procfs::host_memory().map(|host| (host.total.0, host.available.0))
}
