//! Enums of words whose doc sentences are data too.

/// Where reasons are found: kinds of objects, the type of their condition, and whether that is True.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Kinds, in words.
    pub kinds: &'static str,
    /// Condition type.
    pub condition: &'static str,
    /// True or False.
    pub status: bool,
}

/// Declares an enum of words whose doc sentences are also data. Variants stand in groups, and `group` gives the group's
/// value. The printed word is the variant's name, or what is given after `=`.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $group:ty {
            $($value:expr => { $($(#[doc = $meaning:literal])+ $variant:ident $(= $word:literal)?,)+ })+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($($(#[doc = $meaning])+ $variant,)+)+ }

        impl $name {
            /// Every word, in the order of the page.
            pub const ALL: &[Self] = &[$($(Self::$variant,)+)+];

            /// The word as it is printed.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $($(Self::$variant => words!(@printed $variant $($word)?),)+)+ }
            }

            /// What it means and what to do.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $($(Self::$variant => concat!($($meaning),+),)+)+ }
            }

            /// What it has in common with others.
            #[must_use]
            pub const fn group(self) -> $group {
                match self { $($(Self::$variant)|+ => $value,)+ }
            }
        }
    };
    (@printed $variant:ident) => { stringify!($variant) };
    (@printed $variant:ident $word:literal) => { $word };
}
pub(crate) use words;
