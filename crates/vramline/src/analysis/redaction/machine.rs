//! Redaction of a machine, its jobs, and a plan.

use super::{Placeholder, Redaction, facts};
use crate::analysis::doctor::{DeviceLook, MachineLook};
use crate::analysis::pack::{KnownNeed, PackJob};
use crate::analysis::plan::PlanAnalysis;

impl Redaction {
    /// Redacts what was found on a machine, before [`doctor`](crate::analysis::doctor::doctor) analyses it.
    pub fn machine(&mut self, machine: &mut MachineLook) {
        let mut uuids: Vec<String> = Vec::new();
        match &mut machine.driver {
            Ok(driver) => {
                uuids.extend(driver.devices.iter().map(|device| device.facts.uuid.clone()));
                driver.devices.iter_mut().for_each(|device| self.device_look(device));
                driver.cuda.as_mut().err().into_iter().for_each(facts::driver_error);
            }
            Err(error) => facts::driver_error(error),
        }
        for (name, value) in &mut machine.environment {
            *value = self.variable_value(name, value, &uuids);
        }
        match &mut machine.python {
            Ok(python) => {
                python.executable = self.file(&python.executable);
                for look in python.deep.values_mut() {
                    look.error = look.error.as_deref().map(|error| self.exception(error));
                }
            }
            Err(error) => *error = self.quoted(error),
        }
        machine.no_boot = machine.no_boot.as_deref().map(|error| self.quoted(error));
    }

    fn device_look(&mut self, look: &mut DeviceLook) {
        let facts = &mut look.facts;
        facts.uuid = self.uuid(&facts.uuid);
        facts.pci_bus_id = facts.pci_bus_id.as_deref().map(|bus| self.placeholder(Placeholder::Bus, bus));
        facts.part.iter_mut().for_each(|part| part.of = self.uuid(&part.of));
        look.memory.as_mut().err().into_iter().for_each(facts::driver_error);
        look.processes.as_mut().err().into_iter().for_each(facts::driver_error);
    }

    /// Redacts a job, before the jobs are added up.
    pub fn job(&mut self, job: &mut PackJob) {
        job.name = self.placeholder(Placeholder::Job, &job.name);
        job.file = self.file(&job.file);
        if let KnownNeed::Run(reading) = &mut job.known {
            self.reading(reading);
        }
    }

    /// Redacts a plan. The only name in its sentences is that of the variable, which [`Redaction::varied`] redacts before the plan is made.
    pub fn plan(&mut self, plan: &mut PlanAnalysis) {
        plan.pool = self.pool(&plan.pool);
        plan.device = self.device(&plan.device);
        for probe in &mut plan.probes {
            probe.file = self.file(&probe.file);
        }
        plan.confirmation.forget_details();
        for run in &mut plan.confirmation.runs {
            run.file = self.file(&run.file);
        }
        for step in &mut plan.compiled {
            step.file = self.file(&step.file);
            step.program = self.program(&step.program);
        }
    }

    /// Redacts the value of an environment variable; only known settings stay.
    pub(super) fn variable_value(&mut self, name: &str, value: &str, uuids: &[String]) -> String {
        const SETTINGS: [&str; 26] = [
            "0",
            "1",
            "true",
            "false",
            "on",
            "off",
            "yes",
            "no",
            "none",
            "default",
            "platform",
            "bfc",
            "async",
            "cuda_async",
            "cuda_malloc_async",
            "native",
            "cpu",
            "gpu",
            "cuda",
            "tpu",
            "rocm",
            "tensorflow",
            "jax",
            "torch",
            "pci_bus_id",
            "fastest_first",
        ];
        if matches!(name, "CUDA_VISIBLE_DEVICES" | "NVIDIA_VISIBLE_DEVICES") {
            return self.device_list(value, uuids);
        }
        let is_setting = |word: &str| {
            let word = word.trim().to_ascii_lowercase();
            word.is_empty() || SETTINGS.contains(&word.as_str()) || word.parse::<f64>().is_ok()
        };
        // PyTorch's allocator is configured by `key:value,key:value`.
        let is_torch_setting = |setting: &str| {
            const KEYS: [&str; 10] = [
                "backend",
                "max_split_size_mb",
                "max_non_split_rounding_mb",
                "roundup_power2_divisions",
                "garbage_collection_threshold",
                "expandable_segments",
                "pinned_use_cuda_host_register",
                "pinned_num_register_threads",
                "per_process_memory_fraction",
                "release_lock_on_cudamalloc",
            ];
            setting.split_once(':').is_some_and(|(key, value)| {
                KEYS.contains(&key.trim()) && (is_setting(value) || value.trim() == "cudaMallocAsync")
            })
        };
        let is_public = |setting: &str| is_setting(setting) || is_torch_setting(setting);
        if value.split(',').all(is_public) {
            return value.to_owned();
        }
        let shown = |setting: &str, redaction: &mut Redaction| match is_public(setting) {
            true => setting.to_owned(),
            false => redaction.placeholder(Placeholder::Text, setting),
        };
        let settings: Vec<String> = value.split(',').map(|setting| shown(setting, self)).collect();
        settings.join(",")
    }
}
