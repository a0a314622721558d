//! Writes the rows of one recording as Parquet: a folder for each host, a file for each table that has rows.
//!
//! Rows of a table are kept until they fill a group, so memory does not depend on the number of rows.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use vramline::analysis::dataset::key::Key;
use vramline::document::Cell;
use vramline::view::dataset::{ColumnKind, DatasetTable, RowSink, SCHEMA, TableColumn};

/// Number of rows per group.
const GROUP_ROWS: usize = 1 << 16;

/// How every table is written: made once for an export.
pub(crate) struct TableForms {
    forms: BTreeMap<DatasetTable, TableForm>,
    properties: WriterPropertiesPtr,
}

struct TableForm {
    columns: Vec<TableColumn>,
    schema: TypePtr,
}

impl TableForms {
    pub(crate) fn new() -> Result<TableForms, anyhow::Error> {
        let form = |table: DatasetTable| -> Result<_, anyhow::Error> {
            let columns = table.columns();
            let schema = parse_message_type(&message(table, &columns))
                .context("the schema of a table is wrong; please report this bug")?;
            Ok((table, TableForm { columns, schema: Arc::new(schema) }))
        };
        let version = KeyValue::new("vramline.schema".to_owned(), SCHEMA.to_string());
        // Groups of a few rows are the rule: an index would be larger than what it points to.
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(vec![version]))
            .build();
        let forms = DatasetTable::ALL.into_iter().map(form).collect::<Result<_, _>>()?;
        Ok(TableForms { forms, properties: Arc::new(properties) })
    }
}

/// A table in Parquet's own words.
fn message(table: DatasetTable, columns: &[TableColumn]) -> String {
    let column = |column: &TableColumn| {
        let presence = if column.may_be_null { "optional" } else { "required" };
        let (kind, reading) = match column.kind {
            ColumnKind::Int => ("int64", ""),
            ColumnKind::Real => ("double", ""),
            ColumnKind::Bool => ("boolean", ""),
            ColumnKind::Text => ("binary", " (STRING)"),
            ColumnKind::Date => ("int32", " (DATE)"),
        };
        format!("{presence} {kind} {}{reading};", column.name)
    };
    let columns: Vec<String> = columns.iter().map(column).collect();
    format!("message {} {{ {} }}", table.word(), columns.join(" "))
}

/// The rows of one recording.
pub(crate) struct Partition<'a> {
    folder: PathBuf,
    forms: &'a TableForms,
    tables: BTreeMap<(Key, DatasetTable), OpenTable>,
}

/// The rows of one table that are not written yet, and the file if there was more than one group.
struct OpenTable {
    columns: Vec<Column>,
    rows: usize,
    file: Option<SerializedFileWriter<BufWriter<File>>>,
}

impl<'a> Partition<'a> {
    pub(crate) fn new(folder: &Path, forms: &'a TableForms) -> Partition<'a> {
        Partition { folder: folder.to_owned(), forms, tables: BTreeMap::new() }
    }

    /// Writes every table without rows.
    pub(crate) fn add_empty_tables(&mut self) {
        for (table, form) in &self.forms.forms {
            self.tables.entry((Key::schema(), *table)).or_insert_with(|| OpenTable::new(form));
        }
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> Result<(), anyhow::Error> {
        for ((host, table), mut open) in std::mem::take(&mut self.tables) {
            if open.rows > 0 || open.file.is_none() {
                self.flush(&host, table, &mut open)?;
            }
            if let Some(file) = open.file {
                file.close()?;
            }
        }
        Ok(())
    }

    fn flush(&self, host: &Key, table: DatasetTable, open: &mut OpenTable) -> Result<(), anyhow::Error> {
        let file = match &mut open.file {
            Some(file) => file,
            none => none.insert(self.create(host, table)?),
        };
        if open.rows > 0 {
            let mut group = file.next_row_group()?;
            for column in &mut open.columns {
                column.write(&mut group)?;
            }
            group.close()?;
        }
        open.rows = 0;
        Ok(())
    }

    fn create(
        &self,
        host: &Key,
        table: DatasetTable,
    ) -> Result<SerializedFileWriter<BufWriter<File>>, anyhow::Error> {
        let folder = self.folder.join(format!("host={host}"));
        fs::create_dir_all(&folder)?;
        let file = BufWriter::new(File::create(folder.join(format!("{}.parquet", table.word())))?);
        let form = self.forms.forms.get(&table).context("a table has no form; please report this bug")?;
        Ok(SerializedFileWriter::new(file, Arc::clone(&form.schema), Arc::clone(&self.forms.properties))?)
    }
}

impl RowSink for Partition<'_> {
    type Error = anyhow::Error;

    fn row(&mut self, table: DatasetTable, host: &Key, cells: &[Cell<'_>]) -> Result<(), anyhow::Error> {
        let form = self.forms.forms.get(&table).context("a table has no form; please report this bug")?;
        let key = (host.clone(), table);
        let open = self.tables.entry(key.clone()).or_insert_with(|| OpenTable::new(form));
        for (column, cell) in open.columns.iter_mut().zip(cells) {
            column.push(*cell);
        }
        open.rows += 1;
        if open.rows == GROUP_ROWS
            && let Some(mut open) = self.tables.remove(&key)
        {
            self.flush(host, table, &mut open)?;
            self.tables.insert(key, open);
        }
        Ok(())
    }
}

impl OpenTable {
    fn new(form: &TableForm) -> OpenTable {
        OpenTable { columns: form.columns.iter().map(Column::new).collect(), rows: 0, file: None }
    }
}

/// The values of a column that are not written yet.
struct Column {
    values: Values,
    /// For each row whether there is a value; `None` if there always is.
    levels: Option<Vec<i16>>,
}

enum Values {
    Int(Vec<i64>),
    Real(Vec<f64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>),
    Date(Vec<i32>),
}

impl Column {
    fn new(column: &TableColumn) -> Column {
        let values = match column.kind {
            ColumnKind::Int => Values::Int(Vec::new()),
            ColumnKind::Real => Values::Real(Vec::new()),
            ColumnKind::Bool => Values::Bool(Vec::new()),
            ColumnKind::Text => Values::Text(Vec::new()),
            ColumnKind::Date => Values::Date(Vec::new()),
        };
        Column { values, levels: column.may_be_null.then(Vec::new) }
    }

    fn push(&mut self, cell: Cell<'_>) {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(cell != Cell::Null));
        }
        // The declaration of a row gives each cell the kind of its column.
        match (&mut self.values, cell) {
            (Values::Int(values), Cell::Int(value)) => values.push(value),
            (Values::Real(values), Cell::Real(value)) => values.push(value),
            (Values::Bool(values), Cell::Bool(value)) => values.push(value),
            (Values::Text(values), Cell::Text(value)) => values.push(ByteArray::from(value)),
            (Values::Date(values), Cell::Day(value)) => values.push(value),
            _ => {}
        }
    }

    /// Writes the values as the next column of a group, and forgets them.
    fn write(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    ) -> Result<(), anyhow::Error> {
        let levels = self.levels.as_mut().map(std::mem::take);
        let levels = levels.as_deref();
        match &mut self.values {
            Values::Int(values) => write::<Int64Type>(group, &std::mem::take(values), levels),
            Values::Real(values) => write::<DoubleType>(group, &std::mem::take(values), levels),
            Values::Bool(values) => write::<BoolType>(group, &std::mem::take(values), levels),
            Values::Text(values) => write::<ByteArrayType>(group, &std::mem::take(values), levels),
            Values::Date(values) => write::<Int32Type>(group, &std::mem::take(values), levels),
        }
    }
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), anyhow::Error> {
    let mut column = group.next_column()?.context("a table lacks a column; please report this bug")?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()?;
    Ok(())
}
