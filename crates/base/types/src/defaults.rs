//! Structures whose fields say their default values.

/// Declares a structure whose `Default` has the value that stands behind a field, and the default of its type for a field
/// with none.
///
/// ```
/// carmine_types::defaults! {
///     /// A limit.
///     #[derive(Debug, PartialEq)]
///     pub struct Limit {
///         /// Most operations in flight.
///         pub ops: u32 = 128,
///         pub name: String,
///     }
/// }
/// assert_eq!(Limit::default(), Limit { ops: 128, name: String::new() });
/// ```
#[macro_export]
macro_rules! defaults {
    (
        $(#[$attr:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_attr:meta])* $field_vis:vis $field:ident: $type:ty $(= $value:expr)?),* $(,)?
        }
    ) => {
        $(#[$attr])*
        $vis struct $name {
            $($(#[$field_attr])* $field_vis $field: $type),*
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::defaults!(@value $($value)?)),* }
            }
        }
    };
    (@value) => { ::std::default::Default::default() };
    (@value $value:expr) => { $value };
}
