//! What a reader must remember of a body: its classes, type names and reference slots.

/// The tables of one body, and the stack of the containers that are open. Kept between bodies for
/// their memory.
#[derive(Debug, Default)]
pub struct Tables {
    pub(super) classes: Vec<Definition>,
    /// Where each literal type name stands.
    pub(super) types: Vec<usize>,
    /// Lists, maps and objects so far: the next one's number.
    pub(crate) slots: u32,
    /// The containers around the one that is open now.
    pub(super) stack: Vec<Open>,
}

impl Tables {
    pub(super) fn clear(&mut self) {
        self.classes.clear();
        self.types.clear();
        self.slots = 0;
        self.stack.clear();
    }
}

/// A class definition: where its name stands, which the names of its fields follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Definition {
    pub(super) at: usize,
    pub(super) fields: u32,
}

/// What may come next in an open container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    /// Values, as many as there are: no container is open.
    Body,
    /// So many values.
    Values(u32),
    /// A value or the end of the list.
    Until,
    /// A key or the end of the map.
    Key,
    /// The value of the key before.
    Value,
}
