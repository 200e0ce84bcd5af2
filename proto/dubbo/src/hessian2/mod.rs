//! Hessian 2 as Dubbo uses it: values one after another, sharing one set of tables per body.
//!
//! There is no version prefix, no envelope and no packet. The class, type and reference tables run
//! on from the first argument of a call into its attachments, so a reader must walk over what it
//! does not want: [`Reader::skip`] does that without building anything.
//!
//! Source: apache/dubbo-hessian-lite, `Hessian2Input`, `Hessian2Output`, `Hessian2Constants`.

mod cursor;
mod parts;
mod reader;
mod tables;
mod value;
pub mod writer;

pub(crate) use cursor::is_plain_map;
pub use parts::Binary;
pub(crate) use parts::int;
pub use reader::{Class, Reader, Token};
pub use tables::Tables;
pub use value::Value;

/// What a body may contain. Every number is the largest that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Containers open at once while walking. Default 1024: legal chains of nodes are long.
    pub depth: usize,
    /// Containers open at once while building values. Default 64.
    pub decode_depth: usize,
    /// Values built at once. Default 1,048,576: a null costs a byte to send and some 80 to hold.
    pub decode_values: usize,
    /// Class definitions. Default 1024.
    pub classes: usize,
    /// Fields of one class. Default 1024.
    pub fields: usize,
    /// Literal type names. Default 65,536.
    pub types: usize,
    /// Lists, maps and objects. Default 1,048,576: an empty one costs a byte to send.
    pub slots: u32,
    /// Entries of the attachments. Default 4096.
    pub attachments: usize,
    /// Bytes of an attachment's key, and of the name of a class, field or type, which is read again
    /// with every object. Default 1024.
    pub key_len: usize,
    /// Bytes of one of the five strings in front of the arguments. Default 65,536, as a
    /// descriptor of 255 long class names has.
    pub name_len: usize,
}

impl Limits {
    /// No limit: for walking again over what was checked before.
    pub(crate) const NONE: Self = Self {
        depth: usize::MAX,
        decode_depth: usize::MAX,
        decode_values: usize::MAX,
        classes: usize::MAX,
        fields: usize::MAX,
        types: usize::MAX,
        slots: u32::MAX,
        attachments: usize::MAX,
        key_len: usize::MAX,
        name_len: usize::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 1024,
            decode_depth: 64,
            decode_values: 1 << 20,
            classes: 1024,
            fields: 1024,
            types: 65_536,
            slots: 1 << 20,
            attachments: 4096,
            key_len: 1024,
            name_len: 65_536,
        }
    }
}
