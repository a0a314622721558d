//! The live view, which follows recordings: the names of machines, jobs and processes.

use super::{HIDDEN, Redaction, facts};
use crate::analysis::top::TopAnalysis;
use crate::recording::rows::HOST;
use crate::warning::Warning;

impl Redaction {
    /// What a machine's memory does right now. The histories of devices are looked up by their own names, so this comes after them.
    pub fn top(&mut self, top: &mut TopAnalysis) {
        top.host = self.host(&top.host);
        top.driver.as_mut().err().into_iter().for_each(facts::driver_error);
        for device in &mut top.devices {
            if device.uuid != HOST {
                device.uuid = self.uuid(&device.uuid);
            }
            device.part_of = device.part_of.as_deref().map(|whole| self.uuid(whole));
            device.error.iter_mut().for_each(facts::driver_error);
        }
        for job in &mut top.jobs {
            job.path = self.path(&job.path);
            job.command = self.command_line(&job.command);
            job.host = job.host.as_deref().map(|host| self.host(host));
        }
        for process in &mut top.processes {
            process.command = self.command_line(&process.command);
            process.exception = process.exception.as_deref().map(|text| self.exception(text));
            process.device = self.shown_device(&process.device);
        }
        for warning in &mut top.warnings {
            self.live_warning(warning);
        }
    }

    /// `GPU 0.1` is Vramline's own name; others are a framework's.
    fn shown_device(&mut self, name: &str) -> String {
        if self.words.is_pool(name) { name.to_owned() } else { self.device(name) }
    }

    /// A warning of the live view: of the machine itself, or of a recording that is being read.
    fn live_warning(&mut self, warning: &mut Warning) {
        const OF_MACHINE: [&str; 10] = [
            "no-device",
            "driver-silent",
            "driver-not-loaded",
            "version-mismatch",
            "no-permission",
            "not-supported",
            "gpu-lost",
            "not-found",
            "library-too-old",
            "other",
        ];
        match warning.code {
            "library-missing" | "failed" => {
                let subject = warning.text.split(": ").next().unwrap_or_default().to_owned();
                warning.text = format!("{subject}: the driver does not answer {HIDDEN}");
            }
            code if OF_MACHINE.contains(&code) => {}
            _ => self.warning(warning),
        }
    }
}
