//! One list of fields makes a `repr(C)` struct and, for the test that holds it against the header,
//! the names, places and types of its fields.

/// A struct of the header as Rust has it.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// Its name in the header.
    pub c_name: &'static str,
    /// Its name here.
    pub rust_name: &'static str,
    /// Its size, in bytes.
    pub bytes: usize,
    /// Its fields, in order.
    pub fields: &'static [FieldLayout],
}

/// One field.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug)]
pub struct FieldLayout {
    /// Its name, the same on both sides.
    pub name: &'static str,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// Its type, as it is written here.
    pub rust_type: &'static str,
}

/// Makes structs of the header, and `LAYOUT`, which describes them.
macro_rules! mirror {
    ($(
        $(#[$doc:meta])*
        $c_name:literal $name:ident { $( $field:ident : $type:ty, )* }
    )*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(crate) struct $name { $( pub(crate) $field: $type, )* }
        )*

        #[cfg(feature = "testing")]
        pub(super) const LAYOUT: &[$crate::abi::c::layout::StructLayout] = &[ $(
            $crate::abi::c::layout::StructLayout {
                c_name: $c_name,
                rust_name: stringify!($name),
                bytes: size_of::<$name>(),
                fields: &[ $(
                    $crate::abi::c::layout::FieldLayout {
                        name: stringify!($field),
                        offset: std::mem::offset_of!($name, $field),
                        rust_type: stringify!($type),
                    },
                )* ],
            },
        )* ];
    };
}
pub(super) use mirror;
