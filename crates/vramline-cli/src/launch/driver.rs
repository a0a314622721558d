//! Samples the driver while a job runs and stores what it found in `run.json`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vramline::recording::folder::RunPlace;
use vramline::recording::manifest::{Device, RunManifest};
use vramline::recording::watch::{DriverFacts, Watch};
use vramline::source::driver::probe::Probe;
use vramline::source::driver::{Driver, DriverError};

use crate::variables::FAKE_DRIVER;

/// Longest wait for a driver that hangs, at the end of a job.
const PATIENCE: Duration = Duration::from_secs(1);

/// The script of a fake driver, if a test set one.
pub(crate) fn script() -> Option<PathBuf> {
    std::env::var_os(FAKE_DRIVER).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Opens the driver of this machine.
pub(crate) fn open() -> Result<Box<dyn Driver>, DriverError> {
    vramline::source::driver::open(script().as_deref())
}

/// The devices of a fake driver; `None` without one.
pub(crate) fn of_script() -> Option<Vec<Device>> {
    script()?;
    let probe = Probe::open(open).ok();
    let devices = probe.iter().flat_map(|probe| probe.devices());
    Some(devices.map(|facts| Device { name: facts.name.clone(), ..Device::default() }).collect())
}

/// A running watch.
pub(crate) struct Watching {
    watch: Watch,
    /// Whether the run has ended. A driver that answers after that must not overwrite the final manifest.
    is_over: Arc<AtomicBool>,
}

/// Starts to watch a job.
pub(crate) fn watch(place: &RunPlace, job: u32, rate: f64, manifest: &RunManifest) -> Option<Watching> {
    let pace = Duration::try_from_secs_f64(1.0 / rate).ok().filter(|pace| !pace.is_zero());
    let (mut manifest, into) = (manifest.clone(), place.clone());
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let begun = move |found: &DriverFacts| {
        complete(&mut manifest, found.clone());
        if !over.load(Ordering::Acquire) {
            // The manifest is written again at the end, so an error does not matter here.
            let _ = manifest.write_at(&into);
        }
    };
    Some(Watching { watch: Watch::start(place, job, pace, open, begun)?, is_over })
}

/// Ends the watch and adds what it found to the manifest.
pub(crate) fn finish(watching: Option<Watching>, manifest: &mut RunManifest) {
    let Some(Watching { watch, is_over }) = watching else { return };
    if let Some(found) = watch.stop(PATIENCE) {
        complete(manifest, found);
    }
    is_over.store(true, Ordering::Release);
}

fn complete(manifest: &mut RunManifest, found: DriverFacts) {
    // Without the library, the devices from the kernel's files stay.
    if found.run.error.is_none() {
        manifest.devices = found.devices;
    }
    manifest.driver = Some(found.run);
}
