//! Types that are not built in, as the catalogue describes them.

use std::borrow::Cow;
use std::sync::Arc;

use postgres_types::{Kind as TypeKind, Oid, Type};

use crate::driver::Column;

/// A type, with the details that `postgres-types` leaves out.
#[derive(Clone, Debug)]
pub(super) struct KnownType {
    pub(super) kind: Type,
    /// The delimiters of this type and of those inside it, by number, where that is no comma (`typdelim`).
    pub(super) delimiters: Vec<(Oid, u8)>,
}

const COMMA: u8 = b',';

impl KnownType {
    /// Returns a type without parts.
    pub(super) fn plain(kind: Type) -> Self {
        KnownType {
            kind,
            delimiters: Vec::new(),
        }
    }

    /// Returns the type of a column. A type that the catalogue lost has no name.
    pub(super) fn of_column(column: &Column) -> Cow<'_, KnownType> {
        let native = column.native.as_ref();
        match native.and_then(|native| native.value.downcast_ref::<KnownType>()) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(KnownType::plain(
                Type::from_oid(column.type_id).unwrap_or(Type::UNKNOWN),
            )),
        }
    }

    /// Adds the delimiter of a type inside this one, or of this one.
    pub(super) fn note_delimiter(&mut self, oid: Oid, delimiter: u8) {
        if delimiter != COMMA {
            self.delimiters.push((oid, delimiter));
        }
    }

    /// Adds the delimiters of a type inside this one.
    pub(super) fn note_part(&mut self, part: &Arc<KnownType>) {
        self.delimiters.extend_from_slice(&part.delimiters);
    }

    /// Returns the character between the elements of an array.
    pub(super) fn delimiter(&self, element: &Type) -> u8 {
        let mut base = element;
        while let TypeKind::Domain(of) = base.kind() {
            base = of;
        }
        if *base == Type::BOX {
            return b';';
        }
        let noted = |oid| self.delimiters.iter().find(|(noted, _)| *noted == oid);
        noted(element.oid()).map_or(COMMA, |(_, delimiter)| *delimiter)
    }
}
