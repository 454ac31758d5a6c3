//! Looks up types that are not built in, once for all connections of a handle.
//!
//! A native parameter needs its type: a `ToSql` writes it in the form of that type. A column needs its type
//! for arrays, and for [`Row::get_sql`]. Everything else is text where the type is not known.

use std::sync::Arc;

use postgres_types::{Field, Kind as TypeKind, Oid, Type};

use super::connection::PostgresConnection;
use super::known_type::KnownType;
use super::protocol::answer::Answer;
use super::statement::Statement;
use super::types::Layout;
use crate::driver::{BoxFuture, Param};
use crate::{Result, Row};

/// The deepest nesting of types that is looked up. A type inside of itself ends here.
pub(super) const DEEPEST: usize = 8;

impl PostgresConnection {
    /// Returns whether the type of a native parameter has not been looked up.
    pub(super) fn lacks_types(&self, statement: &Statement, params: &[Param<'_>]) -> bool {
        let pairs = statement.params.iter().zip(params);
        pairs.into_iter().any(|(wanted, param)| {
            let is_native = matches!(param, Param::Native(_));
            is_native && Type::from_oid(wanted.oid()).is_none() && wanted.name().is_empty()
        })
    }

    /// Looks up the types of a statement's parameters that are not known yet. This replaces the unnamed
    /// statement.
    pub(super) async fn look_up_types(&mut self, statement: &Statement) -> Result<()> {
        for wanted in &statement.params {
            if wanted.name().is_empty() {
                self.look_up(wanted.oid(), DEEPEST).await?;
            }
        }
        Ok(())
    }

    /// Looks up the types of columns that the layout does not know. A type that was
    /// dropped meanwhile counts as text.
    pub(super) async fn look_up_columns(&mut self, layout: &Layout) -> Result<Arc<Layout>> {
        for oid in &layout.unknown {
            if self.look_up(*oid, DEEPEST).await?.is_none() {
                let lost = KnownType::plain(self.type_of(*oid));
                self.types.insert(*oid, Arc::new(lost));
            }
        }
        Ok(layout.again(|oid| self.types.get(oid)))
    }

    /// Returns the statement with the types that are known now, and updates the cache.
    pub(super) fn with_types(&mut self, statement: &Statement) -> Arc<Statement> {
        let params = statement.params.iter();
        let params = params.map(|wanted| self.type_of(wanted.oid())).collect();
        let layout = match statement.layout.unknown.is_empty() {
            true => Arc::clone(&statement.layout),
            false => statement.layout.again(|oid| self.types.get(oid)),
        };
        let name = statement.name.clone();
        let statement = Arc::new(Statement::new(name, &statement.sql, params, layout));
        self.cache.replace(Arc::clone(&statement));
        statement
    }

    /// Returns the type of this number; `None` if the server has none, or if it is nested too deep.
    pub(super) fn look_up(
        &mut self,
        oid: Oid,
        depth: usize,
    ) -> BoxFuture<'_, Result<Option<Arc<KnownType>>>> {
        Box::pin(async move {
            if let Some(built_in) = Type::from_oid(oid) {
                return Ok(Some(Arc::new(KnownType::plain(built_in))));
            }
            if let Some(known) = self.types.get(oid) {
                return Ok(Some(known));
            }
            let Some(deeper) = depth.checked_sub(1) else {
                return Ok(None);
            };
            let sql = format!(
                "SELECT t.typname::text, n.nspname::text, t.typtype::text, t.typcategory::text, \
                 t.typelem, t.typbasetype, t.typrelid, COALESCE(r.rngsubtype, 0::oid), \
                 t.typdelim::text \
                 FROM pg_catalog.pg_type t \
                 JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
                 LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid WHERE t.oid = {oid}"
            );
            let rows = self.ask(&sql).await?;
            let Some(row) = rows.first() else {
                return Ok(None);
            };
            let (name, schema): (String, String) = (row.get(0)?, row.get(1)?);
            let (form, category): (String, String) = (row.get(2)?, row.get(3)?);
            let [element, base, relation, range] =
                [row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?];
            let delimiter: String = row.get(8)?;
            let mut parts = Vec::new();
            let kind = match (&*form, &*category) {
                ("b", "A") => self
                    .look_up_part(element, deeper, &mut parts)
                    .await?
                    .map(TypeKind::Array),
                ("d", _) => self
                    .look_up_part(base, deeper, &mut parts)
                    .await?
                    .map(TypeKind::Domain),
                ("r", _) => self
                    .look_up_part(range, deeper, &mut parts)
                    .await?
                    .map(TypeKind::Range),
                ("e", _) => Some(TypeKind::Enum(self.labels(oid).await?)),
                ("c", _) => {
                    let fields = self.fields(relation, deeper, &mut parts).await?;
                    Some(TypeKind::Composite(fields))
                }
                _ => None,
            };
            let kind = kind.unwrap_or(TypeKind::Simple);
            let mut found = KnownType::plain(Type::new(name, oid, kind, schema));
            found.note_delimiter(oid, delimiter.bytes().next().unwrap_or(b','));
            for part in &parts {
                found.note_part(part);
            }
            let found = Arc::new(found);
            self.types.insert(oid, Arc::clone(&found));
            Ok(Some(found))
        })
    }

    /// Looks up a type inside of another one, and adds it to the other parts.
    async fn look_up_part(
        &mut self,
        oid: Oid,
        depth: usize,
        parts: &mut Vec<Arc<KnownType>>,
    ) -> Result<Option<Type>> {
        let part = self.look_up(oid, depth).await?;
        let kind = part.as_ref().map(|part| part.kind.clone());
        parts.extend(part);
        Ok(kind)
    }

    async fn labels(&mut self, oid: Oid) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = {oid} \
             ORDER BY enumsortorder"
        );
        let rows = self.ask(&sql).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn fields(
        &mut self,
        relation: Oid,
        depth: usize,
        parts: &mut Vec<Arc<KnownType>>,
    ) -> Result<Vec<Field>> {
        let sql = format!(
            "SELECT attname::text, atttypid FROM pg_catalog.pg_attribute \
             WHERE attrelid = {relation} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        );
        let mut fields = Vec::new();
        for row in self.ask(&sql).await? {
            let oid = row.get(1)?;
            let kind = self.look_up_part(oid, depth, parts).await?;
            let kind = kind.unwrap_or_else(|| self.type_of(oid));
            fields.push(Field::new(row.get(0)?, kind));
        }
        Ok(fields)
    }

    /// Runs a query of the driver's own, inside the call that is under way.
    async fn ask(&mut self, sql: &str) -> Result<Vec<Row>> {
        let mut answer = self.simple(sql, Answer::new(true)).await?;
        let rows = answer.outcome(0)?.rows;
        Ok(rows.map_or_else(Vec::new, |rows| rows.into_rows().collect()))
    }
}
