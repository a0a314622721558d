//! A device, what its memory is, and who is on it.

use super::bar::{BarStretch, bar};
use super::process::{PlacedProcess, ProcessUse};
use super::sight::MachineSight;
use crate::analysis::doctor::DeviceLook;
use crate::ledger::{DeviceFigures, Facts, JobProcess, Ledger, OtherProcess};
use crate::recording::rows::HOST;
use crate::source::driver::DriverError;
use crate::units::Bytes;

/// A device, and what its memory is.
#[derive(Clone, Debug)]
pub struct DeviceUse {
    /// `GPU 0`, of a part `GPU 0.1`; [`HOST`] for the machine's own memory.
    pub name: String,
    /// The driver's name for it; [`HOST`] for the machine's own memory.
    pub uuid: String,
    /// The model.
    pub model: Option<String>,
    /// Of a part, the driver's name for the whole device.
    pub part_of: Option<String>,
    /// Whether the machine's own memory stands in for a device's.
    pub is_stand_in: bool,
    /// All of its memory.
    pub total: Option<Bytes>,
    /// What is not taken.
    pub free: Option<Bytes>,
    /// Why its memory is unknown.
    pub error: Option<DriverError>,
    /// Its memory as a bar; empty where it is not told.
    pub bar: Vec<BarStretch>,
    /// Processes in the driver's list; recorded ones on the CPU.
    pub processes: Option<usize>,
}

/// A device of the driver, and who is on it.
pub(super) fn of_driver(
    sight: &MachineSight<'_>,
    device: &DeviceLook,
    placed: &[PlacedProcess<'_>],
) -> (DeviceUse, Vec<ProcessUse>) {
    let facts = &device.facts;
    let name = match &facts.part {
        Some(part) => format!("GPU {}.{}", facts.index, part.index),
        None => format!("GPU {}", facts.index),
    };
    let memory = device.memory.as_ref().ok();
    let free = memory.map(|memory| memory.free);
    let mut books = Facts {
        device: name.clone(),
        memory: memory.map(|memory| DeviceFigures {
            total: memory.total,
            reserved: memory.in_processes().map(|_| memory.reserved),
            free: memory.free,
        }),
        ..Facts::default()
    };
    let mut processes = Vec::new();
    let ours: Vec<&PlacedProcess<'_>> =
        placed.iter().filter(|entry| entry.uuid.as_ref() == Some(&facts.uuid)).collect();
    let listed = device.processes.as_deref().unwrap_or_default();
    let mut taken = vec![false; ours.len()];
    for process in listed {
        // A process of a recording that has not told of a device yet is on this one all the same.
        let is_here = device.seen_here.contains(&process.pid);
        let is_it = |entry: &PlacedProcess<'_>| entry.is(process.pid) && (is_here || entry.pids.len() > 1);
        let matched = ours.iter().position(|entry| is_it(entry));
        match matched.and_then(|at| Some((ours.get(at)?, taken.get_mut(at)?))) {
            Some((entry, is_taken)) => {
                *is_taken = true;
                let pool = entry.figures();
                // Where the driver does not say what it holds, it is at least its pool.
                let held = process.used.or(pool.taken.or(pool.in_use).map(|told| told.bytes));
                books.job.push(JobProcess {
                    pid: process.pid,
                    held,
                    pools: vec![pool],
                    ..JobProcess::default()
                });
                processes.push(entry.on_device(sight, name.clone(), process.used, free));
            }
            None => {
                let seen = sight.seen.get(&process.pid);
                let command = seen.map_or(String::new(), |seen| seen.command.clone());
                books.others.push(OtherProcess { pid: process.pid, name: String::new(), held: process.used });
                let job = placed.iter().find(|entry| is_it(entry)).map(|entry| entry.job);
                processes.push(ProcessUse {
                    pid: process.pid,
                    device: name.clone(),
                    job,
                    command,
                    held: process.used,
                    ..ProcessUse::default()
                });
            }
        }
    }
    for (entry, _) in ours.iter().zip(taken).filter(|(_, is_taken)| !is_taken) {
        processes.push(entry.on_device(sight, name.clone(), None, free));
    }
    let device = DeviceUse {
        name,
        uuid: facts.uuid.clone(),
        model: facts.name.clone(),
        part_of: facts.part.as_ref().map(|part| part.of.clone()),
        is_stand_in: false,
        total: memory.map(|memory| memory.total),
        free,
        error: device.memory.as_ref().err().cloned(),
        bar: memory.map_or(Vec::new(), |_| bar(&Ledger::of(&books))),
        processes: device.processes.as_ref().ok().map(Vec::len),
    };
    (device, processes)
}

/// The machine's own memory, where it stands in for a device's or is all there is.
pub(super) fn of_host(
    sight: &MachineSight<'_>,
    placed: &[PlacedProcess<'_>],
    has_devices: bool,
) -> Option<(DeviceUse, Vec<ProcessUse>)> {
    let ours: Vec<&PlacedProcess<'_>> =
        placed.iter().filter(|entry| entry.uuid.as_deref() == Some(HOST)).collect();
    if ours.is_empty() && has_devices {
        return None;
    }
    let free = sight.memory.map(|memory| memory.available);
    let mut books = Facts {
        device: HOST.to_owned(),
        memory: sight.memory.map(|memory| DeviceFigures {
            total: memory.total,
            reserved: None,
            free: memory.available,
        }),
        is_stand_in: true,
        ..Facts::default()
    };
    let mut processes = Vec::new();
    for entry in &ours {
        // What the kernel says now; of a process that has ended, nothing is held any more.
        let held = sight.seen_as(&entry.pids).and_then(|seen| seen.resident);
        if held.is_some() {
            let pid = entry.process.recorded.id.pid();
            let pools = vec![entry.figures()];
            books.job.push(JobProcess { pid, held, pools, ..JobProcess::default() });
        }
        processes.push(entry.on_device(sight, HOST.to_owned(), held, free));
    }
    let device = DeviceUse {
        name: HOST.to_owned(),
        uuid: HOST.to_owned(),
        model: None,
        part_of: None,
        is_stand_in: true,
        total: sight.memory.map(|memory| memory.total),
        free,
        error: None,
        bar: sight.memory.map_or(Vec::new(), |_| bar(&Ledger::of(&books))),
        processes: Some(ours.len()),
    };
    Some((device, processes))
}
