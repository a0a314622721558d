//! *Internal.* The simulators: the frameworks' allocators, rebuilt so that the same requests give the same addresses.
//!
//! They know requests, addresses and bytes, but no files, events or traces; [`crate::replay`](mod@crate::replay) drives
//! them. They take memory from a [`Supplier`], because the base addresses that a driver chooses cannot be
//! computed: a replay takes them from the trace, a what-if assumes a placement and says so.

pub mod bfc;
mod free_set;
mod slab;
mod supplier;
pub mod torch_caching;

pub use slab::{Allocation, NotInUse, Ticket};
pub(crate) use supplier::Scripted;
pub use supplier::{Capped, Placed, Placement, Supplier};
