//! Redaction of what was read from a path: traces, snapshots, recordings and failures.

use rustc_hash::FxHashSet;

use super::{HIDDEN, Placeholder, Redaction, messages};
use crate::analysis::moments::HeldAtFailure;
use crate::analysis::reading::{Host, OutOfMemory, Reading};
use crate::event::{Framework, History, MarkKind, ModuleCall, ModulePass};
use crate::failure::{Buffer, Failure, Failures, Witness};
use crate::names::{Name, Names};
use crate::postmortem::need::LeastNeed;
use crate::recording::driver_calls::DriverCalls;
use crate::recording::folder::ProcessId;
use crate::recording::identity::RankIdentity;
use crate::recording::manifest::{Device, RunManifest};
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::rows::{
    Counters, DriverRow, HOST, LayerPath, Mark, OwnerRow, RecordedMarkKind, Variable,
};
use crate::snapshot::Still;
use crate::source::driver::DriverError;
use crate::stack::Stacks;
use crate::trace::Owner;
use crate::trace::cuda_library::CudaLibrary;

impl Redaction {
    /// Redacts everything that was read from a path. Call it once, on a whole reading, before any analysis.
    pub fn reading(&mut self, reading: &mut Reading) {
        if let Some(recorded) = &mut reading.recorded {
            self.recorded(recorded);
        }
        let traces = reading.hosts.iter_mut().chain(&mut reading.later).chain(&mut reading.moments);
        traces.for_each(|host| self.trace(host));
        for moment in &mut reading.still_moments {
            moment.path = self.path(&moment.path);
            self.still(&mut moment.still);
        }
        reading.missing.iter_mut().for_each(|path| *path = self.path(path));
        for (path, still) in &mut reading.stills {
            *path = self.path(path);
            self.still(still);
        }
        if let Some(failures) = &mut reading.failures {
            self.failures(failures);
        }
        reading.other_runs.iter_mut().for_each(|path| *path = self.path(path));
        let unreadable = std::mem::take(&mut reading.unreadable);
        reading.unreadable = unreadable.into_iter().map(|error| self.source_error(error)).collect();
    }

    /// Redacts failed allocations, with the traces of the same job.
    pub fn failures(&mut self, read: &mut OutOfMemory) {
        read.files.iter_mut().for_each(|path| *path = self.path(path));
        read.hosts.iter_mut().for_each(|host| self.trace(host));
        let Failures { list, names, warnings, soft } = &mut read.failures;
        soft.pools.iter_mut().for_each(|pool| *pool = self.pool(pool));
        // Findings about growth contain names of the program.
        for finding in &mut read.growth {
            finding.text = format!("Memory grew by {} before the failure.", finding.bytes);
            finding.fix = "see the findings in the report on this recording".to_owned();
        }
        read.needs.iter_mut().flatten().for_each(LeastNeed::hide_class);
        for held in read.held.iter_mut().flatten().chain(&mut read.killed) {
            self.held(held);
        }
        list.iter_mut().for_each(|failure| self.failure(failure));
        names.rewrite(|_, text| self.name(text, Placeholder::Op));
        self.warnings(warnings);
    }

    fn held(&mut self, held: &mut HeldAtFailure) {
        held.pool = self.pool(&held.pool);
        for owner in &mut held.owners {
            owner.layer = self.layer(&owner.layer);
            owner.source = self.frame(&owner.source);
        }
        // The sentence contains names of the program.
        held.growth = held.growth.as_ref().map(|_| match held.before {
            Some(before) => {
                format!("Memory in use grew from {before} in the first steps to {}.", held.in_use)
            }
            None => format!("Memory in use grew to {}.", held.in_use),
        });
    }

    fn trace(&mut self, host: &mut Host) {
        host.path = self.path(&host.path);
        // Variables come first, because an op may have the name of a variable.
        let mut owners: Vec<&mut Owner> = host.trace.owners_mut().collect();
        owners.sort_unstable_by(|a, b| {
            (&a.variable, &a.layer, &a.source).cmp(&(&b.variable, &b.layer, &b.source))
        });
        for Owner { variable, layer, source, .. } in owners {
            // An argument that is in no tree is its own layer.
            let is_own = !layer.is_empty() && layer == variable;
            *variable = self.name(variable, Placeholder::Variable);
            *layer = if is_own { variable.clone() } else { self.layer(layer) };
            *source = self.frame(source);
        }
        let history = &mut host.trace.history;
        let mut calls: Vec<&mut ModuleCall> = history.module_calls.values_mut().collect();
        calls.sort_unstable_by(|a, b| (&a.model, &a.path).cmp(&(&b.model, &b.path)));
        for ModuleCall { pass, model, path } in calls {
            // The names of regions are PyTorch's own.
            if *pass != ModulePass::Compiled {
                *path = self.layer(path);
                *model = model.as_deref().map(|model| self.layer(model));
            }
        }
        history.host = self.host(&history.host);
        history.pools.iter_mut().for_each(|pool| pool.name = self.pool(&pool.name));
        self.warnings(&mut history.warnings);
        for executable in &mut history.executables {
            executable.name = self.program(&executable.name);
        }
        self.history_names(history);
    }

    fn history_names(&mut self, history: &mut History) {
        let labels: FxHashSet<Name> = history
            .marks
            .iter()
            .filter(|mark| matches!(mark.kind, MarkKind::Step(_) | MarkKind::Update(_)))
            .map(|mark| mark.name)
            .collect();
        if history.framework == Some(Framework::PyTorch) {
            let mut ops: FxHashSet<Name> = history.events.iter().map(|event| event.op_or_scope()).collect();
            let caching = history.pools.iter().filter_map(|pool| pool.caching.as_ref());
            for caching in caching {
                ops.extend(caching.failures.iter().map(|failure| failure.op));
                ops.extend(caching.state.iter().flat_map(|state| &state.blocks).map(|block| block.op));
            }
            self.place_names(&mut history.names, &ops, &labels);
            return;
        }
        for &label in &labels {
            self.name(history.names.get(label), Placeholder::Label);
        }
        let buffers = history.executables.iter().flat_map(|executable| &executable.buffers);
        let sources = buffers.map(|buffer| buffer.source).collect();
        self.op_names(&mut history.names, &history.stacks, sources);
    }

    /// Redacts a table of ops, in which frames of stacks and `sources` are places.
    fn op_names(&mut self, names: &mut Names, stacks: &Stacks, sources: FxHashSet<Name>) {
        let mut places = sources;
        places.extend(stacks.calls().map(|(_, frame)| frame));
        names.rewrite(|name, text| {
            if places.contains(&name) { self.frame(text) } else { self.name(text, Placeholder::Op) }
        });
    }

    fn still(&mut self, still: &mut Still) {
        let held = || still.pools.iter().flat_map(|pool| &pool.snapshot.held);
        let ops: FxHashSet<Name> = held().map(|held| held.op).collect();
        let sources: FxHashSet<&str> = held().map(|held| held.source.as_str()).collect();
        let is_source = |(name, text): &(Name, &str)| !name.is_empty() && sources.contains(text);
        let sources: FxHashSet<Name> = still.names.iter().filter(is_source).map(|(name, _)| name).collect();
        // Pools come before ops, because pools may be named after programs.
        still.pools.iter_mut().for_each(|pool| pool.name = self.pool(&pool.name));
        // In a compiled program ops have names and stacks; elsewhere ops are named after their stacks.
        let has_places = still.format != "hlo" && still.stacks.calls().next().is_some();
        if has_places {
            self.place_names(&mut still.names, &ops, &FxHashSet::default());
        } else {
            self.op_names(&mut still.names, &still.stacks, sources);
        }
        for pool in &mut still.pools {
            pool.device = self.device(&pool.device);
            for held in &mut pool.snapshot.held {
                held.layer = self.layer(&held.layer);
                held.source = self.frame(&held.source);
                held.variable = self.name(&held.variable, Placeholder::Variable);
            }
        }
        self.warnings(&mut still.warnings);
    }

    fn failure(&mut self, failure: &mut Failure) {
        for Witness { path, time, .. } in &mut failure.witnesses {
            *path = self.path(path);
            let is_time = |c: char| c.is_ascii_digit() || " :-.,+/TZsIWEF".contains(c);
            if !time.chars().all(is_time) {
                HIDDEN.clone_into(time);
            }
        }
        let rewritten = |text: &mut Option<String>, rewrite: &mut dyn FnMut(&str) -> String| {
            *text = text.as_deref().map(rewrite);
        };
        rewritten(&mut failure.allocator, &mut |text| self.pool(text));
        rewritten(&mut failure.executable, &mut |text| self.program(text));
        rewritten(&mut failure.op, &mut |text| self.failed_op(text, failure.dialect.is_bfc()));
        rewritten(&mut failure.shape, &mut |text| self.shape(text));
        rewritten(&mut failure.dtype, &mut |text| self.dtype(text));
        rewritten(&mut failure.device, &mut |text| self.device(text));
        for Buffer { operator, label, shape, .. } in &mut failure.buffers {
            *operator = self.operator(operator);
            *label = self.name(label, Placeholder::Op);
            *shape = self.shape(shape);
        }
    }

    /// The op that failed: PyTorch names it by its place.
    fn failed_op(&mut self, text: &str, is_bfc: bool) -> String {
        if is_bfc { self.name(text, Placeholder::Op) } else { self.frame(text) }
    }

    /// Redacts each value of `op_name="jit(step)/mul" source_file="/home/me/train.py" source_line=3`.
    fn operator(&mut self, text: &str) -> String {
        const NUMBERED: [&str; 4] = ["source_line", "source_end_line", "source_column", "source_end_column"];
        let mut shown: Vec<String> = Vec::new();
        let mut rest = text.trim();
        while let Some((key, value)) = rest.split_once("=\"") {
            let Some((value, behind)) = value.split_once('"') else { break };
            match key.trim_start() {
                "op_name" => shown.push(format!("op_name=\"{}\"", self.name(value, Placeholder::Op))),
                "source_file" => shown.push(format!("source_file=\"{}\"", self.file(value))),
                "op_type" => shown.push(format!("op_type=\"{}\"", self.name(value, Placeholder::Op))),
                _ => shown.push(HIDDEN.to_owned()),
            }
            rest = behind.trim_start();
            // Numbers have no quotes.
            while let Some((key, number)) = rest.split(' ').next().and_then(|word| word.split_once('=')) {
                if !NUMBERED.contains(&key) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                    break;
                }
                shown.push(format!("{key}={number}"));
                rest = rest.get(key.len() + 1 + number.len()..).unwrap_or_default().trim_start();
            }
        }
        if !rest.is_empty() {
            shown.push(self.name(rest, Placeholder::Op));
        }
        shown.join(" ")
    }

    fn recorded(&mut self, recorded: &mut Recorded) {
        recorded.path = self.path(&recorded.path);
        if let Some(manifest) = &mut recorded.manifest {
            self.manifest(manifest);
        }
        recorded.processes.iter_mut().for_each(|process| self.process(process));
        for row in &mut recorded.driver {
            self.driver_row(row);
        }
        recorded.driver_calls.iter_mut().for_each(|calls| self.driver_calls(calls));
        self.warnings(&mut recorded.warnings);
    }

    /// Libraries of others keep their names. Those of the program, and lines of Python, are private.
    fn driver_calls(&mut self, calls: &mut DriverCalls) {
        calls.id = self.process_id(&calls.id);
        for call in &mut calls.calls {
            // No answer shows the stack.
            call.stack.clear();
            if let Some(path) = &call.library
                && !CudaLibrary::is_known(path)
            {
                call.library = Some(self.placeholder(Placeholder::Path, path).into());
            }
            if let Ok(line) = &mut call.line {
                line.file = self.placeholder(Placeholder::Path, &line.file);
                line.function = self.placeholder(Placeholder::Frame, &line.function);
            }
        }
    }

    fn manifest(&mut self, manifest: &mut RunManifest) {
        manifest.command = self.command(&manifest.command);
        manifest.cwd = self.file(&manifest.cwd);
        manifest.host = self.host(&manifest.host);
        self.identity(&mut manifest.identity);
        let uuids: Vec<String> = manifest.devices.iter().filter_map(|device| device.uuid.clone()).collect();
        manifest.settings.gpus = manifest.settings.gpus.as_deref().map(|list| self.device_list(list, &uuids));
        for (name, value) in &mut manifest.environment {
            *value = self.variable_value(name, value, &uuids);
        }
        for Device { uuid, pci_bus_id, part, error, .. } in &mut manifest.devices {
            *uuid = uuid.as_deref().map(|uuid| self.uuid(uuid));
            *pci_bus_id = pci_bus_id.as_deref().map(|bus| self.placeholder(Placeholder::Bus, bus));
            part.iter_mut().for_each(|part| part.of = self.uuid(&part.of));
            error.iter_mut().for_each(driver_error);
        }
        if let Some(driver) = &mut manifest.driver {
            driver.error.iter_mut().for_each(driver_error);
        }
    }

    /// Users choose the names of jobs and labels.
    fn identity(&mut self, identity: &mut RankIdentity) {
        identity.job = identity.job.as_ref().map(|_| HIDDEN.to_owned());
        identity.host = identity.host.as_deref().map(|host| self.host(host));
        identity.run = identity.run.as_deref().map(|id| self.process_name(id));
        identity.boot_id = None;
        identity.labels.clear();
    }

    fn process_name(&mut self, name: &str) -> String {
        match name.parse::<ProcessId>() {
            Ok(id) => self.process_id(&id).to_string(),
            Err(_) => HIDDEN.to_owned(),
        }
    }

    fn process(&mut self, process: &mut RecordedProcess) {
        process.id = self.process_id(&process.id);
        let forked_from = process.facts.forked_from.as_deref();
        process.facts.forked_from = forked_from.map(|name| self.process_name(name));
        self.identity(&mut process.facts.identity);
        process.marks.iter_mut().for_each(|mark| self.mark(mark));
        let counters = process.samples.iter_mut().filter_map(|sample| sample.counters.as_mut());
        counters.for_each(|counters| self.counters(counters));
        for Variable { owner, name, shape, dtype, device, layer, source, .. } in
            process.inventories.iter_mut().flat_map(|inventory| &mut inventory.variables)
        {
            self.layer_path(layer);
            *source = source.as_deref().map(|source| self.frame(source));
            *owner = owner.as_deref().map(|owner| self.layer(owner));
            *name = self.name(name, Placeholder::Variable);
            *shape = shape.as_deref().map(|shape| self.shape(shape));
            *dtype = dtype.as_deref().map(|dtype| self.dtype(dtype));
            *device = device.as_deref().map(|device| self.device(device));
        }
        for OwnerRow { name, layer, variable, source, .. } in &mut process.owners {
            *name = self.name(name, Placeholder::Op);
            self.layer_path(layer);
            *variable = variable.as_deref().map(|variable| self.name(variable, Placeholder::Variable));
            *source = source.as_deref().map(|source| self.frame(source));
        }
        let words = process.exception.iter_mut().chain(&mut process.dumps);
        let paths = process.trace.iter_mut().chain(words).chain(process.moments.values_mut());
        paths.for_each(|path| *path = self.path(path));
    }

    fn layer_path(&mut self, path: &mut LayerPath) {
        path.model = path.model.as_deref().map(|model| self.layer(model));
        path.layer = path.layer.as_deref().map(|layer| self.layer(layer));
    }

    fn process_id(&mut self, id: &ProcessId) -> ProcessId {
        ProcessId::new(&self.host(id.host()), id.pid(), id.start())
    }

    fn mark(&mut self, mark: &mut Mark) {
        if let RecordedMarkKind::Other(word) = &mut mark.kind {
            *word = self.placeholder(Placeholder::Label, word);
        }
        mark.label = mark.label.as_deref().map(|label| match mark.kind {
            RecordedMarkKind::Exception => self.exception(label),
            RecordedMarkKind::Step | RecordedMarkKind::Call | RecordedMarkKind::Retrace
                if self.words.is_function(label) =>
            {
                label.to_owned()
            }
            _ => self.label(label),
        });
        mark.path = mark.path.as_ref().map(|path| self.path(path.as_ref()).display().to_string());
        mark.counters.iter_mut().for_each(|counters| self.counters(counters));
    }

    fn counters(&mut self, counters: &mut Counters) {
        counters.device = self.device(&counters.device);
        counters.reason = counters.reason.take().map(messages::reason);
    }

    fn driver_row(&mut self, row: &mut DriverRow) {
        if row.device != HOST {
            row.device = self.uuid(&row.device);
        }
        row.command = row.command.as_deref().map(|command| self.command_line(command));
        row.reason = row.reason.take().map(messages::reason);
        row.work = row.work.take().map(|work| match work.as_str() {
            "compute" | "graphics" | "both" => work,
            _ => HIDDEN.to_owned(),
        });
    }

    /// A shape stays; any other text is hidden.
    fn shape(&mut self, text: &str) -> String {
        if text.is_empty() || super::names::is_shape(text) {
            return text.to_owned();
        }
        self.placeholder(Placeholder::Text, text)
    }

    /// An element type stays; any other text is hidden.
    fn dtype(&mut self, text: &str) -> String {
        const KINDS: [&str; 13] = [
            "float", "bfloat", "half", "double", "int", "uint", "qint", "quint", "complex", "bool", "string",
            "resource", "variant",
        ];
        const EIGHT_BITS: [&str; 5] =
            ["float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz"];
        let letters = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_known = text.is_empty() || KINDS.contains(&letters) || EIGHT_BITS.contains(&text);
        if is_known { text.to_owned() } else { self.placeholder(Placeholder::Text, text) }
    }

    /// The UUID of a device. All placeholders have the same length, because lists of devices may contain prefixes of UUIDs.
    pub(super) fn uuid(&mut self, uuid: &str) -> String {
        if uuid.is_empty() {
            return String::new();
        }
        let number = self.number(Placeholder::Device, uuid);
        let kind = if uuid.starts_with("MIG-") { "MIG" } else { "GPU" };
        format!("{kind}-{number:08}")
    }

    /// A list of devices, as in `CUDA_VISIBLE_DEVICES`; `uuids` are those of the machine.
    pub(super) fn device_list(&mut self, list: &str, uuids: &[String]) -> String {
        let entry = |entry: &str, redaction: &mut Redaction| {
            let plain = entry.trim();
            let is_number =
                plain.strip_prefix('-').unwrap_or(plain).bytes().all(|byte| byte.is_ascii_digit());
            if is_number || matches!(plain, "none" | "all" | "void") {
                return entry.to_owned();
            }
            let mut fitting = uuids.iter().filter(|uuid| uuid.starts_with(plain));
            match (fitting.next(), fitting.next()) {
                (Some(uuid), None) => redaction.uuid(uuid),
                _ => "GPU-unknown".to_owned(),
            }
        };
        let entries: Vec<String> = list.split(',').map(|one| entry(one, self)).collect();
        entries.join(",")
    }
}

/// An error of the driver, whose message may contain file names.
pub(super) fn driver_error(error: &mut DriverError) {
    if let DriverError::LibraryMissing { detail } | DriverError::Failed { detail } = error {
        HIDDEN.clone_into(detail);
    }
}
