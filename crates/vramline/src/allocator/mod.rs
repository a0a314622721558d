//! *Internal.* The simulators: the frameworks' allocators, rebuilt so that the same requests give the same addresses.
//!
//! They know requests, addresses and bytes, and nothing of files, events or frameworks' traces; [`crate::replay`](mod@crate::replay) drives
//! them. What they take their memory from is a [`Supplier`], because a driver's choice of base addresses cannot be
//! computed: a replay takes them from the trace, a what-if assumes a placement and says so.

pub mod bfc;
mod free_set;
mod slab;
mod supplier;
pub mod torch_caching;

pub use slab::{Allocation, NotInUse, Ticket};
pub(crate) use supplier::Scripted;
pub use supplier::{Capped, Placed, Placement, Supplier};
