//! The rows of a dataset as Arrow streams: what Spark's workers read.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Date32Builder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vramline::analysis::dataset::DatasetSource;
use vramline::analysis::dataset::key::{Key, SourceKeys};
use vramline::document::Cell;
use vramline::view::dataset::queries::{QUERIES, VIEWS};
use vramline::view::dataset::{
    ColumnKind, DatasetTable, PARTITIONS, RowSink, SCHEMA, TableColumn, write, write_error,
};

/// Rows of a stream. A worker hands on each stream as one value, so it must not be large.
const STREAM_ROWS: usize = 1 << 14;

/// A column: name, kind, whether it may be null.
type ColumnTuple = (&'static str, &'static str, bool);

/// Returns the version of the tables, and each table with its columns. The last columns are those of the folders.
#[pyfunction]
pub(crate) fn dataset_schema() -> (u32, Vec<(&'static str, Vec<ColumnTuple>)>) {
    let column = |column: TableColumn| (column.name, column.kind.word(), column.may_be_null);
    let partitions = || PARTITIONS.into_iter().map(|(name, _)| (name, ColumnKind::Text.word(), false));
    let table = |table: DatasetTable| {
        (table.word(), table.columns().into_iter().map(column).chain(partitions()).collect())
    };
    (SCHEMA, DatasetTable::ALL.into_iter().map(table).collect())
}

/// Returns the views that questions need, and each question: name, question, SQL.
#[pyfunction]
pub(crate) fn dataset_queries() -> (&'static str, Vec<(&'static str, &'static str, &'static str)>) {
    (VIEWS.sql, QUERIES.iter().map(|query| (query.name, query.title(), query.sql)).collect())
}

/// The name of a table, and rows as an Arrow stream.
type StreamTuple = (&'static str, Py<PyBytes>);

/// Returns the key of a recording or file, and its rows in streams. What cannot be read is a row of errors.
#[pyfunction]
pub(crate) fn dataset_rows(
    py: Python<'_>,
    path: PathBuf,
    allocations: bool,
) -> PyResult<(String, Vec<StreamTuple>)> {
    let streams = py.detach(|| {
        let rows = match DatasetSource::read(&path, &Arc::default()) {
            Ok(source) => {
                let mut rows = Streams::new(source.keys.clone());
                write(source, allocations, &mut rows)?;
                rows
            }
            Err(error) => {
                let mut rows = Streams::new(SourceKeys::of_unreadable(&path));
                write_error(&path.to_string_lossy(), &error, &mut rows)?;
                rows
            }
        };
        let recording = rows.keys.recording.to_string();
        Ok::<_, ArrowError>((recording, rows.finish()?))
    });
    let (recording, streams) = streams.map_err(|error| PyOSError::new_err(error.to_string()))?;
    let stream = |(table, bytes): (&'static str, Vec<u8>)| (table, PyBytes::new(py, &bytes).unbind());
    Ok((recording, streams.into_iter().map(stream).collect()))
}

/// The rows of one source.
struct Streams {
    keys: SourceKeys,
    open: Vec<(DatasetTable, OpenStream)>,
    done: Vec<(&'static str, Vec<u8>)>,
}

impl Streams {
    fn new(keys: SourceKeys) -> Streams {
        Streams { keys, open: Vec::new(), done: Vec::new() }
    }

    fn finish(mut self) -> Result<Vec<(&'static str, Vec<u8>)>, ArrowError> {
        for (table, stream) in &mut self.open {
            if stream.rows > 0 {
                self.done.push((table.word(), stream.take()?));
            }
        }
        Ok(self.done)
    }
}

impl RowSink for Streams {
    type Error = ArrowError;

    fn row(&mut self, table: DatasetTable, host: &Key, cells: &[Cell<'_>]) -> Result<(), ArrowError> {
        let place = self.open.iter().position(|(known, _)| *known == table);
        let place = place.unwrap_or_else(|| {
            self.open.push((table, OpenStream::new(table)));
            self.open.len() - 1
        });
        let Some((_, stream)) = self.open.get_mut(place) else { return Ok(()) };
        let keys = [self.keys.job.as_str(), self.keys.recording.as_str(), host.as_str()];
        stream.push(cells.iter().copied().chain(keys.map(Cell::Text)));
        if stream.rows == STREAM_ROWS {
            self.done.push((table.word(), stream.take()?));
        }
        Ok(())
    }
}

/// Rows of a table that are not a stream yet.
struct OpenStream {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
}

impl OpenStream {
    fn new(table: DatasetTable) -> OpenStream {
        let columns = table.columns();
        let partitions = PARTITIONS.map(|(name, _)| (name, ColumnKind::Text, false));
        let all =
            columns.iter().map(|column| (column.name, column.kind, column.may_be_null)).chain(partitions);
        let (fields, columns): (Vec<Field>, Vec<Column>) = all
            .map(|(name, kind, may_be_null)| {
                let column = Column::new(kind);
                (Field::new(name, column.data_type(), may_be_null), column)
            })
            .unzip();
        OpenStream { schema: Arc::new(Schema::new(fields)), columns, rows: 0 }
    }

    fn push<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
        self.rows += 1;
    }

    /// The rows as a stream, and none of them left.
    fn take(&mut self) -> Result<Vec<u8>, ArrowError> {
        let columns = self.columns.iter_mut().map(Column::take).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        let mut writer = StreamWriter::try_new(Vec::new(), &self.schema)?;
        writer.write(&batch)?;
        self.rows = 0;
        writer.into_inner()
    }
}

/// The values of a column.
enum Column {
    Int(Int64Builder),
    Real(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
    Date(Date32Builder),
}

impl Column {
    fn new(kind: ColumnKind) -> Column {
        match kind {
            ColumnKind::Int => Column::Int(Int64Builder::new()),
            ColumnKind::Real => Column::Real(Float64Builder::new()),
            ColumnKind::Bool => Column::Bool(BooleanBuilder::new()),
            ColumnKind::Text => Column::Text(StringBuilder::new()),
            ColumnKind::Date => Column::Date(Date32Builder::new()),
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Column::Int(_) => DataType::Int64,
            Column::Real(_) => DataType::Float64,
            Column::Bool(_) => DataType::Boolean,
            Column::Text(_) => DataType::Utf8,
            Column::Date(_) => DataType::Date32,
        }
    }

    /// Adds a value. The declaration of a row gives each cell the kind of its column.
    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Column::Int(values), Cell::Int(value)) => values.append_value(value),
            (Column::Real(values), Cell::Real(value)) => values.append_value(value),
            (Column::Bool(values), Cell::Bool(value)) => values.append_value(value),
            (Column::Text(values), Cell::Text(value)) => values.append_value(value),
            (Column::Date(values), Cell::Day(value)) => values.append_value(value),
            (Column::Int(values), _) => values.append_null(),
            (Column::Real(values), _) => values.append_null(),
            (Column::Bool(values), _) => values.append_null(),
            (Column::Text(values), _) => values.append_null(),
            (Column::Date(values), _) => values.append_null(),
        }
    }

    fn take(&mut self) -> ArrayRef {
        match self {
            Column::Int(values) => Arc::new(values.finish()),
            Column::Real(values) => Arc::new(values.finish()),
            Column::Bool(values) => Arc::new(values.finish()),
            Column::Text(values) => Arc::new(values.finish()),
            Column::Date(values) => Arc::new(values.finish()),
        }
    }
}
