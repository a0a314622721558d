//! What a pool held at many moments: by role for a chart, and block by block for a table.
//!
//! One pass over the allocations serves all moments, because a chart has tens of thousands of them. A band goes by what each
//! block is by itself; a snapshot also sees which blocks are second values of one variable.

use super::{Life, PoolTrace, Trace, program};
use crate::snapshot::{Role, Snapshot};
use crate::units::{Bytes, Picos};

const ROLES: usize = Role::ALL.len();

/// What a pool held at a moment; the parts add up to what was in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Band {
    /// Requested, in the order of [`Role::ALL`].
    pub by_role: [Bytes; ROLES],
    /// Taken beyond what was requested.
    pub slack: Bytes,
    /// From before the recording.
    pub before_recording: Bytes,
}

impl Band {
    /// Everything.
    #[must_use]
    pub fn in_use(&self) -> Bytes {
        self.by_role.iter().copied().sum::<Bytes>() + self.slack + self.before_recording
    }

    /// Takes `bytes` out, from what is known least.
    fn cut(&mut self, mut bytes: Bytes) {
        for part in self.by_role.iter_mut().rev().chain([&mut self.slack, &mut self.before_recording]) {
            let less = bytes.min(*part);
            *part = part.saturating_sub(less);
            bytes = bytes.saturating_sub(less);
        }
    }
}

fn place(role: Role) -> usize {
    Role::ALL.iter().position(|&known| known == role).unwrap_or(ROLES - 1)
}

/// An allocation that lives at some of the positions that were asked about.
#[derive(Clone, Copy, Debug)]
struct Spanning {
    birth: usize,
    freed: Option<Picos>,
    /// The first of the positions, and the one after the last.
    from: usize,
    until: usize,
}

impl Trace {
    /// Whether the program listed its variables.
    #[must_use]
    pub(crate) fn has_inventory(&self) -> bool {
        !self.listed.is_empty()
    }

    /// The role of an allocation by itself. `freed` is when that was.
    #[must_use]
    pub(crate) fn role_of(&self, pool: &PoolTrace, life: &Life, freed: Option<Picos>) -> Role {
        self.role(pool, life.birth, freed).0
    }

    /// Adds a block that is passed to compiled programs, whose role changes when a call returns its next value. Returns whether it is one.
    fn add_argument(
        &self,
        pool: &PoolTrace,
        block: &Spanning,
        positions: &[usize],
        changes: &mut [[i128; ROLES + 1]],
    ) -> bool {
        let events = &self.history.events;
        let turns = self.arguments.turns(block.birth);
        if turns.is_empty() || self.owned.contains_key(&block.birth) {
            return false;
        }
        let event = events.at(block.birth);
        let chunk = event.size().unwrap_or_default();
        let requested = event.requested().unwrap_or(chunk).min(chunk);
        let mut add = |at: usize, part: usize, bytes: i128| {
            let slot = changes.get_mut(at).and_then(|row| row.get_mut(part));
            slot.into_iter().for_each(|slot| *slot += bytes);
        };
        let mut from = block.from;
        let first_after =
            |turn: Picos| positions.partition_point(|&position| pool.time(events, position) < turn);
        let ends = turns.into_iter().map(|turn| first_after(turn).min(block.until)).chain([block.until]);
        for until in ends {
            let Some(&first) = positions.get(from).filter(|_| from < until) else { continue };
            let passed = self.arguments.at(block.birth, pool.time(events, first));
            let role = place(passed.map_or(Role::Unknown, |passed| passed.role));
            add(from, role, i128::from(requested.0));
            add(until, role, -i128::from(requested.0));
            from = until;
        }
        let slack = i128::from(chunk.saturating_sub(requested).0);
        add(block.from, ROLES, slack);
        add(block.until, ROLES, -slack);
        true
    }

    /// What a pool held at each of `positions`, which are in order.
    #[must_use]
    pub fn bands(&self, pool: &PoolTrace, positions: &[usize]) -> Vec<Band> {
        let events = &self.history.events;
        let spanning = self.spanning(pool, positions);
        let births: Vec<usize> = if self.history.executables.is_empty() {
            Vec::new()
        } else {
            spanning.iter().map(|block| block.birth).collect()
        };
        let programs = program::find(&self.history, pool, &births);
        // What changes from one position to the next; slack comes last.
        let mut changes = vec![[0_i128; ROLES + 1]; positions.len() + 1];
        for block in &spanning {
            if self.add_argument(pool, block, positions, &mut changes) {
                continue;
            }
            let mut parts = [0_i128; ROLES + 1];
            let mut add = |part: usize, bytes: Bytes| {
                if let Some(slot) = parts.get_mut(part) {
                    *slot += i128::from(bytes.0);
                }
            };
            if let Some(program) =
                programs.get(&block.birth).filter(|_| !self.owned.contains_key(&block.birth))
            {
                let whole = self.held(pool, block.birth, block.freed, events.time(block.birth));
                for held in program.explode(&self.history, &whole) {
                    add(place(held.role), held.requested);
                    add(ROLES, held.slack());
                }
            } else {
                let event = events.at(block.birth);
                let chunk = event.size().unwrap_or_default();
                let requested = event.requested().unwrap_or(chunk).min(chunk);
                add(place(self.role(pool, block.birth, block.freed).0), requested);
                add(ROLES, chunk.saturating_sub(requested));
            }
            for (at, sign) in [(block.from, 1), (block.until, -1)] {
                let row = changes.get_mut(at).into_iter().flatten();
                row.zip(&parts).for_each(|(slot, part)| *slot += sign * part);
            }
        }
        let mut now = [0_i128; ROLES + 1];
        let mut before = pool.before_at_each(positions).into_iter();
        let band = |(&position, changed): (&usize, &[i128; ROLES + 1])| {
            now.iter_mut().zip(changed).for_each(|(slot, change)| *slot += change);
            let mut band = Band::default();
            let parts = band.by_role.iter_mut().chain([&mut band.slack]);
            parts
                .zip(&now)
                .for_each(|(part, &bytes)| *part = Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)));
            // The allocator counts right: what it counts and no event shows is unknown, and where frees are missing there
            // seems to be too much.
            let in_use = pool.in_use_at(events, position);
            let known = band.in_use();
            band.cut(known.saturating_sub(in_use));
            band.before_recording = before.next().unwrap_or_default().min(in_use.saturating_sub(known));
            let lost = in_use.saturating_sub(band.in_use());
            for carried in self.carried.iter().filter(|carried| carried.is_at(pool, position)) {
                if let Some(part) = band.by_role.get_mut(place(carried.owner.role))
                    && carried.bytes() <= band.before_recording
                {
                    *part += carried.bytes();
                    band.before_recording = band.before_recording.saturating_sub(carried.bytes());
                }
            }
            if let Some(unknown) = band.by_role.last_mut() {
                *unknown += lost;
            }
            band
        };
        positions.iter().zip(&changes).map(band).collect()
    }

    /// What a pool held at each of `positions`, which are in order, block by block.
    #[must_use]
    pub fn snapshots(&self, pool: &PoolTrace, positions: &[usize]) -> Vec<Snapshot> {
        let mut live: Vec<Vec<usize>> = vec![Vec::new(); positions.len()];
        for block in self.spanning(pool, positions) {
            let lists = live.get_mut(block.from..block.until).into_iter().flatten();
            lists.for_each(|list| list.push(block.birth));
        }
        let snapshot = |(&position, live)| self.snapshot_of(pool, position, live);
        positions.iter().zip(live).map(snapshot).collect()
    }

    /// The allocations that live at one of `positions` at least, in order. Of a large trace these are few.
    fn spanning(&self, pool: &PoolTrace, positions: &[usize]) -> Vec<Spanning> {
        let mut from = 0;
        let mut spanning = Vec::new();
        for life in pool.lives() {
            while positions.get(from).is_some_and(|&at| at < life.born_at) {
                from += 1;
            }
            let Some(&first) = positions.get(from) else { break };
            if life.freed_at.is_some_and(|freed| freed <= first) {
                continue;
            }
            let until =
                life.freed_at.map_or(positions.len(), |freed| positions.partition_point(|&at| at < freed));
            let freed = life.freed_at.map(|at| pool.time(&self.history.events, at));
            spanning.push(Spanning { birth: life.birth, freed, from, until });
        }
        spanning
    }
}
