//! One definition for each setting: field, default, allowed values, unit and documentation.
//!
//! [`settings!`](crate::settings!) defines the struct of a config table and a constant `SETTINGS` that describes it.
//! For the host and the bundled engines, documentation, error messages and the JSON Schema of the configuration
//! are generated from it.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

/// A setting, or a nested table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name of its field.
    pub name: &'static str,
    /// The kind of value.
    pub kind: SettingKind,
    /// The unit of a number; may be empty.
    pub unit: &'static str,
    /// The default value, null for an unset one; `None` for a required setting.
    pub default: Option<fn() -> Value>,
    /// The documentation of the field.
    #[doc(hidden)]
    pub text: &'static str,
}

/// The kind of value of a setting.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SettingKind {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Text that is not blank.
    Text,
    /// Text that may be empty.
    AnyText,
    /// An address.
    Url,
    /// A SHA-256 in hex.
    Digest,
    /// The name of an environment variable.
    Variable,
    /// A duration: a text such as `"5m"`, or a number of minutes.
    Duration,
    /// A list of texts.
    List,
    /// A list of public keys.
    Keys,
    /// A list of rules of a quality gate.
    Rules,
    /// A whole number of at least this.
    Whole(u64),
    /// A whole number between these two, both included.
    Between(u64, u64),
    /// A number between these two, both included.
    Number(f64, f64),
    /// A number of at least this.
    AtLeast(f64),
    /// A number above 0, at most 1.
    Share,
    /// A table of texts with names chosen by the user.
    Texts,
    /// A table of providers or addresses with names chosen by the user.
    Upstreams,
    /// The id of an engine, or a list of ids; other values count as unset.
    Slot,
    /// A table that is described elsewhere.
    Foreign,
    /// A table of settings.
    Table(&'static [Setting]),
    /// A table of such tables with names chosen by the user.
    Tables(&'static [Setting]),
}

impl Setting {
    /// Its documentation as a clause, for the cell of a table: lower case at the start, without a full stop.
    pub fn reason(&self) -> String {
        let text = self.text.trim();
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            // Keeps abbreviations: two capitals in a row.
            (Some(first), second) if !second.is_some_and(char::is_uppercase) => {
                first.to_lowercase().chain(second).chain(chars).collect()
            }
            _ => text.to_owned(),
        }
    }

    /// The expected value, as a phrase after "must be".
    pub fn expectation(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.expect(&mut text);
        text
    }

    fn expect(&self, text: &mut String) -> std::fmt::Result {
        text.push_str(match self.kind {
            SettingKind::Flag => "true or false",
            SettingKind::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                return write!(text, "one of {}", words.join(", "));
            }
            SettingKind::Text => "text that is not blank",
            SettingKind::AnyText => "text",
            SettingKind::Url => {
                "an address that begins with http:// or https://; ${NAME} is not replaced in it"
            }
            SettingKind::Digest => "a SHA-256 of 64 hex digits, as `sha256sum` prints it",
            SettingKind::Variable => {
                "the name of an environment variable, such as API_KEY; its value does not belong in the file"
            }
            SettingKind::Duration => "a length of time, such as \"5m\"",
            SettingKind::List => "a list of texts, such as [\"mask\"]",
            SettingKind::Keys => "a list of minisign public keys, such as [\"RWQ...\"]",
            SettingKind::Rules => "a list of rules, such as [\"paths >= 0.95\"]",
            SettingKind::Whole(least) if self.unit.is_empty() => {
                return write!(text, "a whole number of at least {least}");
            }
            SettingKind::Whole(least) => {
                return write!(text, "a whole number of {}, at least {least}", self.unit);
            }
            SettingKind::Between(least, most) => {
                return write!(text, "a whole number of {} from {least} to {most}", self.unit);
            }
            SettingKind::Number(least, most) => {
                return write!(text, "a number from {least} to {most}");
            }
            SettingKind::AtLeast(least) => return write!(text, "a number of at least {least}"),
            SettingKind::Share => "a share above 0, at most 1",
            SettingKind::Texts => "a table of texts, such as { NAME = \"value\" }",
            SettingKind::Upstreams => {
                "a table of providers or addresses, such as { anthropic = \"https://...\" }"
            }
            SettingKind::Slot => "the id of an engine, a list of them, or `none`",
            // Tables are described by their own settings.
            SettingKind::Foreign | SettingKind::Table(_) | SettingKind::Tables(_) => "a table",
        });
        Ok(())
    }
}

impl SettingKind {
    /// Whether a number is within the bounds; `false` for kinds that are not numbers.
    pub fn allows_number(self, number: f64) -> bool {
        match self {
            SettingKind::Whole(least) => number >= least as f64,
            SettingKind::Between(least, most) => (least as f64..=most as f64).contains(&number),
            SettingKind::Number(least, most) => (least..=most).contains(&number),
            SettingKind::AtLeast(least) => number >= least,
            SettingKind::Share => number > 0.0 && number <= 1.0,
            _ => false,
        }
    }
}

/// A default as JSON.
#[doc(hidden)]
pub fn to_json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Defines the struct of a config table. Each setting is
/// `name: Type = default, Kind, "unit";` after its documentation as a doc comment.
///
/// The struct has a `Default` and the constant `SETTINGS`, a slice of [`Setting`](crate::settings::Setting). A struct
/// with required settings is marked `required`: it has no `Default`, and the defaults of its other fields are functions
/// of a module `default`, for `#[serde(default = "default::name")]`. A field without a
/// [`SettingKind`](crate::settings::SettingKind) is not a setting.
///
/// ```
/// ctxhost_engine_api::settings! {
///     /// Settings of the engine.
///     #[derive(Debug)]
///     pub struct Settings {
///         /// How many turns are kept: enough to continue.
///         pub turns: u64 = 3, Whole(1), "turns";
///     }
/// }
/// assert_eq!(Settings::default().turns, 3);
/// assert_eq!(Settings::SETTINGS[0].expectation(), "a whole number of turns, at least 1");
/// assert_eq!(Settings::SETTINGS[0].reason(), "how many turns are kept: enough to continue");
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$($meta:tt)*])*
        $vis:vis struct $table:ident {
            $(
                $(#[$($attribute:tt)*])*
                $field_vis:vis $name:ident: $type:ty = $default:expr
                    $(, $allowed:ident $(($($bound:expr),*))? $(, $unit:literal)?)?;
            )*
        }
    ) => {
        $crate::__settings_table! {
            $(#[$($meta)*])*
            $vis struct $table {
                $(
                    $(#[$($attribute)*])*
                    $field_vis $name: $type, [$(#[$($attribute)*])*] [$default]
                        $($allowed $(($($bound),*))? $(, $unit)?)?;
                )*
            }
        }

        impl ::core::default::Default for $table {
            fn default() -> Self {
                $table { $($name: $default),* }
            }
        }
    };
    (
        $(#[$($meta:tt)*])*
        $vis:vis struct $table:ident required {
            $(
                $(#[$($attribute:tt)*])*
                $field_vis:vis $name:ident: $type:ty $(= $default:expr)?,
                    $allowed:ident $(($($bound:expr),*))? $(, $unit:literal)?;
            )*
        }
    ) => {
        $crate::__settings_table! {
            $(#[$($meta)*])*
            $vis struct $table {
                $(
                    $(#[$($attribute)*])*
                    $field_vis $name: $type, [$(#[$($attribute)*])*] [$($default)?]
                        $allowed $(($($bound),*))? $(, $unit)?;
                )*
            }
        }

        /// The default values.
        mod default {
            #[allow(unused_imports)]
            use super::*;
            $($(
                pub(super) fn $name() -> $type {
                    $default
                }
            )?)*
        }
    };
}

/// Defines the struct of a table and its description.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_table {
    (
        $(#[$($meta:tt)*])*
        $vis:vis struct $table:ident {
            $(
                $(#[$($attribute:tt)*])*
                $field_vis:vis $name:ident: $type:ty, $text:tt $default:tt
                    $($allowed:ident $(($($bound:expr),*))? $(, $unit:literal)?)?;
            )*
        }
    ) => {
        $(#[$($meta)*])*
        // The text is documentation for users; brackets and addresses in it are not rustdoc links.
        #[allow(rustdoc::broken_intra_doc_links, rustdoc::bare_urls, rustdoc::invalid_html_tags)]
        $vis struct $table {
            $($(#[$($attribute)*])* $field_vis $name: $type,)*
        }

        impl $table {
            /// Every setting of this table.
            $vis const SETTINGS: &'static [$crate::settings::Setting] = &[
                $($(
                    $crate::settings::Setting {
                        name: stringify!($name),
                        kind: $crate::settings::SettingKind::$allowed $(($($bound),*))?,
                        unit: concat!("" $(, $unit)?),
                        default: $crate::__settings_default!($type, $default),
                        text: $crate::__settings_text!($text),
                    },
                )?)*
            ];
        }
    };
}

/// A function that returns the default as JSON, if there is one.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_default {
    ($type:ty, []) => {
        None
    };
    ($type:ty, [$default:expr]) => {
        // A function instead of a value: defaults such as `String` cannot be built in a constant.
        Some(|| {
            let value: $type = $default;
            $crate::settings::to_json(&value)
        })
    };
}

/// Joins the lines of a doc comment; skips other attributes.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_text {
    ([]) => { "" };
    ([#[doc = $line:literal] $($rest:tt)*]) => {
        concat!($line, $crate::__settings_text!([$($rest)*]))
    };
    ([#[$($other:tt)*] $($rest:tt)*]) => { $crate::__settings_text!([$($rest)*]) };
}

#[cfg(test)]
mod tests {
    use super::SettingKind;

    crate::settings! {
        /// A table.
        #[derive(Debug, PartialEq)]
        struct Table {
            /// JSON and what is in it,
            /// on two lines.
            #[allow(dead_code)]
            text: String = "a".into(), AnyText;
            /// A share. Half of it.
            share: f64 = 0.5, Number(0.0, 0.9), "share";
            beside: u8 = 7;
        }
    }

    crate::settings! {
        #[derive(Debug)]
        struct Named required {
            /// Who.
            name: String, Text;
            /// How often.
            tries: u32 = 3, Whole(1), "tries";
        }
    }

    #[test]
    fn a_definition_is_a_struct_with_defaults_and_a_description() {
        let table = Table::default();
        assert_eq!((table.text.as_str(), table.share, table.beside), ("a", 0.5, 7));
        let [text, share] = Table::SETTINGS else { panic!("{:?}", Table::SETTINGS) };
        assert_eq!((text.name, text.unit, text.expectation().as_str()), ("text", "", "text"));
        assert_eq!(text.reason(), "JSON and what is in it, on two lines");
        assert_eq!((share.reason(), share.unit), ("a share. Half of it".into(), "share"));
        assert_eq!(share.expectation(), "a number from 0 to 0.9");
    }

    #[test]
    fn what_has_no_default_is_required() {
        let named = Named { name: "x".into(), tries: default::tries() };
        assert_eq!((named.name.as_str(), named.tries), ("x", 3));
        let [name, tries] = Named::SETTINGS else { panic!("{:?}", Named::SETTINGS) };
        assert!(name.default.is_none());
        assert_eq!(tries.default.map(|default| default()), Some(3.into()));
    }

    #[test]
    fn numbers_are_held_against_their_bounds() {
        for (allowed, inside, outside) in [
            (SettingKind::Share, 1.0, 0.0),
            (SettingKind::Number(0.0, 0.5), 0.0, 0.6),
            (SettingKind::AtLeast(1.0), 9.0, 0.9),
            (SettingKind::Whole(1), 1.0, 0.0),
            (SettingKind::Between(1, 3), 3.0, 4.0),
        ] {
            assert!(
                allowed.allows_number(inside) && !allowed.allows_number(outside),
                "{allowed:?}"
            );
        }
        assert!(
            !SettingKind::Flag.allows_number(1.0) && !SettingKind::Share.allows_number(f64::NAN)
        );
    }
}
