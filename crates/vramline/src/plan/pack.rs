//! Several jobs on one device: what each may take, and whether all of that fits.
//!
//! Only sums: every job takes its limit and what it holds beside its pool, the driver keeps its share, neighbours keep theirs, and
//! what is left is the rest. A no needs no assumption: what is known to be needed exceeds the device. A yes allows none.

use crate::units::Bytes;

/// Limits are whole MiB.
pub const MIB: Bytes = Bytes(1 << 20);

/// A job that is to share a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The least that its pool must have.
    pub minimum: Bytes,
    /// Whether that is enough in every run, as far as can be known.
    pub is_sure: bool,
    /// What it holds beside its pool: a context, libraries. Nothing where that is not known.
    pub outside: Option<Bytes>,
    /// Its limit is a multiple of this.
    pub granule: Bytes,
}

/// The device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub total: Bytes,
    /// What the driver keeps.
    pub reserved: Bytes,
    /// What is taken already.
    pub taken: Bytes,
}

impl Room {
    /// The total memory that CUDA reports: everything that the driver does not reserve.
    #[must_use]
    pub fn usable(&self) -> Bytes {
        self.total.saturating_sub(self.reserved)
    }
}

/// What a job gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The limit of its pool: the minimum and the headroom.
    pub limit: Bytes,
    /// The limit beyond the minimum.
    pub headroom: Bytes,
    /// Beside its pool, as known or as assumed.
    pub outside: Bytes,
    /// The limit and what is beside it.
    pub total: Bytes,
}

/// Jobs on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// What each job gets, in the order they were given.
    pub shares: Vec<Share>,
    /// All shares, what the driver keeps and what is taken.
    pub sum: Bytes,
    /// The same with minima instead of limits, and without what is only assumed.
    pub least: Bytes,
    /// Whether all fit: a yes or a no that rests on nothing assumed.
    pub fits: Option<bool>,
}

/// Adds up. Headroom is in percent of the minimum; `assumed` stands for what a job holds beside its pool where that is not known.
#[must_use]
pub fn pack(needs: &[Need], room: Room, headroom: u64, assumed: Bytes) -> Packing {
    let share = |need: &Need| {
        let more = u128::from(need.minimum.0) * u128::from(headroom) / 100;
        let wanted = need.minimum + Bytes(u64::try_from(more).unwrap_or(u64::MAX));
        let limit = Bytes(wanted.0.checked_next_multiple_of(need.granule.0.max(1)).unwrap_or(u64::MAX));
        let outside = need.outside.unwrap_or(assumed);
        Share { limit, headroom: limit.saturating_sub(need.minimum), outside, total: limit + outside }
    };
    let shares: Vec<Share> = needs.iter().map(share).collect();
    let fixed = room.reserved + room.taken;
    let sum = shares.iter().map(|share| share.total).sum::<Bytes>() + fixed;
    let known = |need: &Need| need.minimum + need.outside.unwrap_or_default();
    let least = needs.iter().map(known).sum::<Bytes>() + fixed;
    let is_known = needs.iter().all(|need| need.is_sure && need.outside.is_some());
    let fits = if least > room.total { Some(false) } else { (is_known && sum <= room.total).then_some(true) };
    Packing { shares, sum, least, fits }
}

/// A limit as a share of what CUDA tells, in millionths, rounded down: JAX takes its limit so.
#[must_use]
pub(crate) fn millionths(limit: Bytes, room: Room) -> Option<u64> {
    let usable = u128::from(room.usable().0);
    let share = (u128::from(limit.0) * 1_000_000).checked_div(usable)?;
    u64::try_from(share).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn need(gib: u64, outside: Option<u64>) -> Need {
        let outside = outside.map(|mib| Bytes(mib * MIB.0));
        Need { minimum: Bytes(gib * GIB), is_sure: true, outside, granule: MIB }
    }

    #[test]
    fn everything_is_added_up() {
        let room = Room { total: Bytes(16 * GIB), reserved: Bytes(GIB / 2), taken: Bytes(GIB) };
        let packed = pack(&[need(4, Some(600)), need(2, Some(500))], room, 10, Bytes(GIB));
        let [first, second] = packed.shares.as_slice() else { panic!("two shares") };
        assert_eq!(first.limit, Bytes(4506 * MIB.0), "4 GiB and a tenth, in whole MiB");
        assert_eq!(first.headroom, Bytes(410 * MIB.0));
        assert_eq!(first.total, Bytes(5106 * MIB.0));
        assert_eq!(packed.sum, first.total + second.total + Bytes(GIB + GIB / 2));
        assert_eq!(packed.least, Bytes(6 * GIB + 1100 * MIB.0 + GIB + GIB / 2));
        assert_eq!(packed.fits, Some(true));
        // A framework that rounds its limit up takes what it rounds to.
        let coarse = Need { minimum: Bytes(3 * MIB.0), granule: Bytes(2 * MIB.0), ..need(4, Some(0)) };
        assert_eq!(pack(&[coarse], room, 0, Bytes(GIB)).shares[0].limit, Bytes(4 * MIB.0));
    }

    #[test]
    fn a_no_needs_no_assumption_and_a_yes_allows_none() {
        let room = Room { total: Bytes(8 * GIB), ..Room::default() };
        let fits = |needs: &[Need]| pack(needs, room, 10, Bytes(GIB)).fits;
        assert_eq!(fits(&[need(9, None)]), Some(false));
        assert_eq!(fits(&[need(2, None)]), None, "beside its pool it may hold anything");
        assert_eq!(fits(&[need(2, Some(0))]), Some(true));
        assert_eq!(fits(&[need(8, Some(0))]), None, "only without headroom");
        assert_eq!(fits(&[Need { is_sure: false, ..need(2, Some(0)) }]), None);
        assert_eq!(fits(&[need(4, Some(0)), need(5, None)]), Some(false));
        assert_eq!(pack(&[need(1, None)], room, 0, Bytes(GIB)).sum, Bytes(2 * GIB), "what is assumed counts");
    }

    #[test]
    fn nothing_overflows() {
        let all =
            Need { minimum: Bytes(u64::MAX), is_sure: true, outside: Some(Bytes(u64::MAX)), granule: MIB };
        let room = Room { total: Bytes(u64::MAX), reserved: Bytes(u64::MAX), taken: Bytes(u64::MAX) };
        let packed = pack(&[all, all], room, u64::MAX, Bytes(u64::MAX));
        assert_eq!(packed.sum, Bytes(u64::MAX));
        assert_eq!(millionths(Bytes(1), room), None, "of nothing there is no share");
        assert_eq!(millionths(Bytes(u64::MAX), Room { total: Bytes(1), ..Room::default() }), None);
    }
}
