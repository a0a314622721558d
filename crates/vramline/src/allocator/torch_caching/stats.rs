//! The allocator's counters, with the names of `torch.cuda.memory_stats()`, updated at the same moments.

/// One figure over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The current value.
    pub current: u64,
    /// The highest value.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
}

impl Stat {
    /// The sum of all decreases.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.allocated.saturating_sub(self.current)
    }

    #[inline]
    pub(super) fn increase(&mut self, amount: u64) {
        self.current = self.current.saturating_add(amount);
        self.allocated = self.allocated.saturating_add(amount);
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    pub(super) fn decrease(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
    }
}

/// One figure over time, for each size class and for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByClass {
    /// Of requests up to 1 MiB.
    pub small_pool: Stat,
    /// Of larger ones.
    pub large_pool: Stat,
    peak: u64,
}

impl ByClass {
    /// Both together: the peak is not the sum of their peaks.
    #[must_use]
    pub fn all(&self) -> Stat {
        Stat {
            current: self.current(),
            peak: self.peak,
            allocated: self.small_pool.allocated.saturating_add(self.large_pool.allocated),
        }
    }

    /// The current value of both.
    #[must_use]
    #[inline]
    pub fn current(&self) -> u64 {
        self.small_pool.current.saturating_add(self.large_pool.current)
    }

    /// The highest value of both.
    #[must_use]
    #[inline]
    pub fn peak(&self) -> u64 {
        self.peak
    }

    #[inline]
    fn class(&mut self, is_small: bool) -> &mut Stat {
        if is_small { &mut self.small_pool } else { &mut self.large_pool }
    }

    #[inline]
    pub(super) fn increase(&mut self, is_small: bool, amount: u64) {
        self.class(is_small).increase(amount);
        self.peak = self.peak.max(self.current());
    }

    #[inline]
    pub(super) fn decrease(&mut self, is_small: bool, amount: u64) {
        self.class(is_small).decrease(amount);
    }

    /// Changes the value once, by the net of several changes.
    #[inline]
    pub(super) fn change(&mut self, is_small: bool, more: u64, less: u64) {
        if more > less {
            self.increase(is_small, more - less);
        } else if less > more {
            self.decrease(is_small, less - more);
        }
    }
}

/// All figures. Those in bytes are `u64` here because counts and bytes share their shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks handed out.
    pub allocation: ByClass,
    /// Segments taken from the driver; expandable ones do not count.
    pub segment: ByClass,
    /// Blocks handed out, and those that wait for a stream.
    pub active: ByClass,
    /// Free parts of segments that are not wholly free; those of expandable ones do not count.
    pub inactive_split: ByClass,
    /// Bytes of blocks handed out.
    pub allocated_bytes: ByClass,
    /// Bytes taken from the driver.
    pub reserved_bytes: ByClass,
    /// Bytes of blocks handed out, and of those that wait for a stream.
    pub active_bytes: ByClass,
    /// Bytes of free parts of segments that are not wholly free.
    pub inactive_split_bytes: ByClass,
    /// Requested bytes.
    pub requested_bytes: ByClass,
    /// Blocks handed out that are too large to be split.
    pub oversize_allocations: Stat,
    /// Segments that are too large to be split.
    pub oversize_segments: Stat,
    /// Number of requests for which the whole cache was released.
    pub num_alloc_retries: u64,
    /// Requests that failed.
    pub num_ooms: u64,
    /// Number of times that all streams were waited for.
    pub num_sync_all_streams: u64,
    /// Calls to the driver that took memory.
    pub num_device_alloc: u64,
    /// Calls to the driver that returned memory.
    pub num_device_free: u64,
}
