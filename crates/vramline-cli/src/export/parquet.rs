//! Writes allocations as Parquet. Only one group of rows is in memory at a time.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use vramline::analysis::export::PoolHistory;
use vramline::view::export::{Allocation, allocations};

/// Number of rows per group.
const GROUP_ROWS: usize = 1 << 16;

/// The columns of [`super::table::COLUMNS`]. Addresses and process IDs that do not fit into 63 bits are null.
const SCHEMA: &str = "message allocations {
    required binary pool (STRING); required binary device (STRING); required binary host (STRING);
    optional int64 pid; optional int64 address; required int64 born_ns; optional int64 freed_ns;
    required int64 bytes; required int64 chunk_bytes;
    required binary op (STRING); required binary layer (STRING); required binary role (STRING);
    required binary variable (STRING); required binary shape (STRING); required binary dtype (STRING);
    optional int64 step; required binary phase (STRING); required boolean at_peak;
}";

pub(crate) fn write(pools: &[PoolHistory<'_>], out: &mut (impl Write + Send)) -> Result<(), anyhow::Error> {
    let schema =
        Arc::new(parse_message_type(SCHEMA).context("the Parquet schema is wrong; please report this bug")?);
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(out, schema, properties)?;
    let mut rows: Vec<Allocation> = Vec::new();
    for row in pools.iter().flat_map(allocations) {
        rows.push(row);
        if rows.len() == GROUP_ROWS {
            group(&mut file, &rows)?;
            rows.clear();
        }
    }
    if !rows.is_empty() {
        group(&mut file, &rows)?;
    }
    file.close()?;
    Ok(())
}

fn group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    rows: &[Allocation],
) -> Result<(), anyhow::Error> {
    let mut group = file.next_row_group()?;
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let small = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
    texts(&mut group, rows, |row| &row.pool)?;
    texts(&mut group, rows, |row| &row.device)?;
    texts(&mut group, rows, |row| &row.host)?;
    optional(&mut group, rows, |row| small(row.pid))?;
    optional(&mut group, rows, |row| small(row.address))?;
    column::<Int64Type, _>(&mut group, &rows.iter().map(|row| row.born_ns.0).collect::<Vec<_>>(), None)?;
    optional(&mut group, rows, |row| row.freed_ns.map(|time| time.0))?;
    column::<Int64Type, _>(
        &mut group,
        &rows.iter().map(|row| signed(row.bytes.0)).collect::<Vec<_>>(),
        None,
    )?;
    column::<Int64Type, _>(
        &mut group,
        &rows.iter().map(|row| signed(row.chunk_bytes.0)).collect::<Vec<_>>(),
        None,
    )?;
    texts(&mut group, rows, |row| &row.op)?;
    texts(&mut group, rows, |row| &row.layer)?;
    texts(&mut group, rows, |row| row.role)?;
    texts(&mut group, rows, |row| &row.variable)?;
    texts(&mut group, rows, |row| &row.shape)?;
    texts(&mut group, rows, |row| row.dtype)?;
    optional(&mut group, rows, |row| row.step)?;
    texts(&mut group, rows, |row| row.phase)?;
    column::<BoolType, _>(&mut group, &rows.iter().map(|row| row.at_peak).collect::<Vec<_>>(), None)?;
    group.close()?;
    Ok(())
}

fn texts<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Allocation],
    of: impl Fn(&Allocation) -> &str,
) -> Result<(), anyhow::Error> {
    column::<ByteArrayType, _>(
        group,
        &rows.iter().map(|row| ByteArray::from(of(row))).collect::<Vec<_>>(),
        None,
    )
}

fn optional<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Allocation],
    of: impl Fn(&Allocation) -> Option<i64>,
) -> Result<(), anyhow::Error> {
    let levels: Vec<i16> = rows.iter().map(|row| i16::from(of(row).is_some())).collect();
    column::<Int64Type, _>(group, &rows.iter().filter_map(of).collect::<Vec<_>>(), Some(&levels))
}

fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), anyhow::Error> {
    let mut column =
        group.next_column()?.context("the Parquet schema lacks a column; please report this bug")?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()?;
    Ok(())
}
