//! Redaction of the live view: the names of machines, jobs and processes.

use super::{HIDDEN, Placeholder, Redaction, facts};
use crate::analysis::top::TopAnalysis;
use crate::recording::rows::HOST;
use crate::warning::Warning;

impl Redaction {
    /// Redacts the current state of a machine. Histories are looked up by the devices' real names, so this is called after that.
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
            self.identity(&mut job.identity);
        }
        for host in &mut top.hosts {
            host.host = host.host.as_deref().map(|name| self.host(name));
            host.job_name = host.job_name.as_ref().map(|_| HIDDEN.to_owned());
        }
        for process in &mut top.processes {
            process.command = self.command_line(&process.command);
            process.exception = process.exception.as_deref().map(|text| self.exception(text));
            process.device = self.shown_device(&process.device);
            process.pool = self.shown_device(&process.pool);
            self.identity(&mut process.identity);
            for line in &mut process.outside {
                if !line.library.is_public() {
                    line.library.name = self.placeholder(Placeholder::Path, &line.library.name);
                }
                line.place = None;
            }
        }
        for warning in &mut top.warnings {
            self.live_warning(warning);
        }
    }

    /// `GPU 0.1` is Vramline's own name; other names come from a framework.
    fn shown_device(&mut self, name: &str) -> String {
        if self.words.is_pool(name) { name.to_owned() } else { self.device(name) }
    }

    /// Redacts a warning of the live view, about the machine or a recording.
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
