//! Streams on disks that are slow, full or cut by others.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use super::appender::{QUEUE, Tail};
use super::disk::Disk;
use super::{Appender, Cell, StreamError, Table, read, read_bytes};
use crate::recording::schema::SAMPLES;

fn row(number: i64) -> [Cell<'static>; 1] {
    [Cell::Int(Some(number))]
}

fn numbers(table: &Table) -> Vec<i64> {
    table.ints("time_ns").into_iter().flatten().collect()
}

/// An appender whose disk is this file.
fn onto(path: &Path, file: File) -> Appender {
    let mut appender = Appender::open(path, SAMPLES).unwrap();
    appender.tail = Tail::Direct(Disk::new(file, 0));
    appender
}

#[test]
fn what_a_thread_writes_is_whole_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples");
    let mut appender = Appender::open(&path, SAMPLES).unwrap();
    appender.append(&[&row(0)]).unwrap();
    appender.leave_it_to_a_thread();
    for number in 1..1_000 {
        appender.append(&[&row(number)]).unwrap();
    }
    appender.close();
    let table = read(&path).unwrap();
    assert_eq!(numbers(&table), (0..1_000).collect::<Vec<_>>());
    assert_eq!(table.torn_bytes, 0);
    // A closed one says that it takes no more.
    assert!(matches!(appender.append(&[&row(0)]), Err(StreamError::Lost { lost: 1, .. })));
}

/// A stream of many messages lies in room that was made for them; one that was never closed reads the same.
#[test]
fn room_that_is_not_filled_is_no_part_of_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples");
    let mut appender = Appender::open(&path, SAMPLES).unwrap();
    // More than fit one room.
    let all: Vec<i64> = (0..3_000).collect();
    for &number in &all {
        appender.append(&[&row(number)]).unwrap();
    }
    let killed = std::fs::read(&path).unwrap();
    appender.close();
    let closed = std::fs::read(&path).unwrap();
    for bytes in [&killed, &closed] {
        let table = read_bytes(bytes.clone(), &path).unwrap();
        assert_eq!((numbers(&table), table.torn_bytes), (all.clone(), 0));
        assert_eq!(table.whole_bytes, closed.len() as u64);
    }
    assert!(killed.starts_with(&closed) && killed.iter().skip(closed.len()).all(|&byte| byte == 0));
    // It goes on behind what is whole, whatever follows it.
    std::fs::write(&path, &killed).unwrap();
    let mut appender = Appender::open(&path, SAMPLES).unwrap();
    appender.append(&[&row(3_000)]).unwrap();
    drop(appender);
    let table = read(&path).unwrap();
    assert_eq!((numbers(&table), table.torn_bytes), ((0..=3_000).collect(), 0));
}

/// Killed while it stored a message: all but the first word may be there.
#[test]
fn a_message_without_its_first_word_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples");
    let mut appender = Appender::open(&path, SAMPLES).unwrap();
    appender.append(&[&row(1)]).unwrap();
    let whole = std::fs::metadata(&path).unwrap().len();
    appender.append(&[&row(2)]).unwrap();
    drop(appender);
    let mut bytes = std::fs::read(&path).unwrap();
    let begin = usize::try_from(whole).unwrap();
    bytes[begin..begin + 8].fill(0);
    let last = bytes.iter().rposition(|&byte| byte != 0).unwrap() as u64;
    bytes.resize(bytes.len() + 5_000, 0);
    let table = read_bytes(bytes, &path).unwrap();
    assert_eq!((numbers(&table), table.whole_bytes, table.torn_bytes), (vec![1], whole, last + 1 - whole));
}

#[test]
fn a_stream_that_somebody_cuts_costs_the_stream_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples");
    let mut appender = Appender::open(&path, SAMPLES).unwrap();
    for number in 0..100 {
        appender.append(&[&row(number)]).unwrap();
    }
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    for number in 0..100 {
        // An error, or written; where there is no room it is the latter.
        let _ = appender.append(&[&row(number)]);
    }
    appender.close();
}

/// A pipe that nobody reads is a disk that never answers: the program goes on, and is told what was lost.
#[test]
fn a_disk_that_does_not_answer_blocks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples");
    let (mut reader, writer) = io::pipe().unwrap();
    let mut appender = onto(&path, File::from(std::os::fd::OwnedFd::from(writer)));
    appender.leave_it_to_a_thread();
    let mut taken = Vec::new();
    let mut lost = 0;
    while lost < 10 {
        let number = i64::try_from(taken.len()).unwrap() + lost;
        match appender.append(&[&row(number)]) {
            Ok(()) => taken.push(number),
            Err(StreamError::Lost { lost: so_far, .. }) => {
                lost += 1;
                assert_eq!(so_far, lost.cast_unsigned());
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(taken.len() >= QUEUE);
    // The disk answers again: what was queued arrives whole.
    let drain = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    });
    drop(appender);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(drain.join().unwrap());
    let table = read_bytes(bytes, &path).unwrap();
    assert_eq!(numbers(&table), taken);
    assert_eq!(table.torn_bytes, 0);
}

/// Where a torn message cannot be cut off, nothing is written behind it: it would not be found again.
#[test]
fn nothing_follows_a_tear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples");
    // Takes nothing, and cannot be cut.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut appender = onto(&path, full);
    for _ in 0..2 {
        assert!(matches!(appender.append(&[&row(0)]), Err(StreamError::Io { .. })));
        let Tail::Direct(disk) = &appender.tail else { continue };
        assert!(disk.is_longer);
    }
    // The file can be cut again: it goes on behind what was whole.
    drop(Appender::open(&path, SAMPLES).unwrap());
    let whole = std::fs::metadata(&path).unwrap().len();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"torn").unwrap();
    let mut disk = Disk::new(file, whole);
    disk.is_longer = true;
    appender.tail = Tail::Direct(disk);
    appender.append(&[&row(7)]).unwrap();
    let table = read(&path).unwrap();
    assert_eq!((numbers(&table), table.torn_bytes), (vec![7], 0));
}
