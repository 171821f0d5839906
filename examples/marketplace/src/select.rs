//! Lists of rows: SQLite filters, sorts and paginates.
//!
//! SQLite also writes the JSON (`json_object`), so a row is one text that is copied into the response. The
//! SQL text depends on the names of the parameters but not on their values, so that the prepared statement is
//! nearly always in the connection's cache.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::http::{HandlerInput, HandlerOutput};
use crate::problem::ErrorResponse;

/// A `SELECT` under construction.
pub(crate) struct Select {
    json: &'static str,
    table: &'static str,
    conditions: Vec<String>,
    values: Vec<Value>,
    order: &'static str,
    each: Option<(&'static str, i64)>,
}

impl Select {
    /// Selects all rows of `table`, each as the JSON text `json`, by ID.
    pub(crate) fn new(json: &'static str, table: &'static str) -> Self {
        Self { json, table, conditions: Vec::new(), values: Vec::new(), order: "id", each: None }
    }

    /// Keeps only rows that satisfy `condition`, which contains no values.
    pub(crate) fn only(mut self, condition: &str) -> Self {
        self.conditions.push(condition.into());
        self
    }

    /// Keeps only rows that have `value` in `column`, if it is given.
    pub(crate) fn with(mut self, column: &str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            self.conditions.push(format!("{column} = ?"));
            self.values.push(value.into());
        }
        self
    }

    /// Keeps only rows whose `column` is in a JSON array, if it is given.
    pub(crate) fn with_any(mut self, column: &str, values: Option<String>) -> Self {
        if let Some(values) = values {
            self.conditions.push(format!("{column} IN (SELECT value FROM json_each(?))"));
            self.values.push(values.into());
        }
        self
    }

    /// Sorts the rows in this order, if it is given.
    pub(crate) fn order(mut self, order: Option<&'static str>) -> Self {
        self.order = order.unwrap_or(self.order);
        self
    }

    /// Keeps at most `count` rows, the first in the order, for each value of `column`.
    pub(crate) fn each(mut self, column: &'static str, count: Option<i64>) -> Self {
        self.each = count.map(|count| (column, count));
        self
    }

    /// Returns the page given by the request's `limit` and `offset`, and the total number of rows.
    pub(crate) fn answer(
        mut self,
        db: &Connection,
        request: &HandlerInput,
    ) -> Result<HandlerOutput, ErrorResponse> {
        let (limit, offset) = (request.parameters.number("limit")?, request.parameters.number("offset")?);
        let from = self.from();
        if limit.is_none() && offset.is_none() {
            let (body, total) = self.rows(db, &from, "")?;
            return Ok(HandlerOutput::list(body, total));
        }
        let count = format!("SELECT count(*) FROM {from}");
        let total = db.prepare_cached(&count)?.query_row(params_from_iter(&self.values), |row| row.get(0))?;
        self.values.extend([limit.unwrap_or(-1).into(), offset.unwrap_or(0).into()]);
        let (body, _) = self.rows(db, &from, " LIMIT ? OFFSET ?")?;
        Ok(HandlerOutput::list(body, total))
    }

    /// Returns the SQL after `FROM`.
    fn from(&mut self) -> String {
        let (table, order) = (self.table, self.order);
        let filter = match self.conditions.as_slice() {
            [] => String::new(),
            conditions => format!(" WHERE {}", conditions.join(" AND ")),
        };
        let Some((column, count)) = self.each else { return format!("{table}{filter}") };
        self.values.push(count.into());
        let place = format!("row_number() OVER (PARTITION BY {column} ORDER BY {order})");
        format!("(SELECT *, {place} AS place FROM {table}{filter}) WHERE place <= ?")
    }

    fn rows(&self, db: &Connection, from: &str, page: &str) -> rusqlite::Result<(Vec<u8>, i64)> {
        let sql = format!("SELECT {} FROM {from} ORDER BY {}{page}", self.json, self.order);
        let mut statement = db.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(&self.values))?;
        let (mut body, mut count) = (vec![b'['], 0);
        while let Some(row) = rows.next()? {
            if count > 0 {
                body.push(b',');
            }
            body.extend_from_slice(row.get_ref(0)?.as_str()?.as_bytes());
            count += 1;
        }
        body.push(b']');
        Ok((body, count))
    }
}

/// Runs a statement that returns at most one row as JSON text.
pub(crate) fn one(
    db: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let text = |row: &rusqlite::Row<'_>| Ok(row.get_ref(0)?.as_str()?.as_bytes().to_vec());
    rows.next()?.map(text).transpose()
}
