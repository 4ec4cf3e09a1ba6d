//! A macro that defines `repr(C)` structs together with the layout that a test compares with the header.

/// The Rust layout of a struct of the header.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// Its name in the header.
    pub c_name: &'static str,
    /// Its name in Rust.
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
    /// Its offset, in bytes.
    pub offset: usize,
    /// Its type, as written in Rust.
    pub rust_type: &'static str,
}

/// Defines structs of the header, and `LAYOUT`, which describes them.
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
