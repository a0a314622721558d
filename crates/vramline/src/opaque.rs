//! Structs whose fields only Vramline's own programs see.

/// Declares a struct whose fields are public with the feature `internals` only. Without it a field holds types that have no
/// public name.
macro_rules! opaque {
    ($(#[$on_type:meta])* pub struct $type:ident { $($(#[$on_field:meta])* $field:ident: $of:ty),+ $(,)? }) => {
        #[cfg(feature = "internals")]
        $(#[$on_type])*
        pub struct $type { $($(#[$on_field])* pub $field: $of),+ }

        #[cfg(not(feature = "internals"))]
        $(#[$on_type])*
        pub struct $type { $($(#[$on_field])* pub(crate) $field: $of),+ }
    };
}
