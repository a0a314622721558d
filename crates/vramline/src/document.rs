//! *Internal.* What is said of a field of a JSON document, said once: `#[derive(Document)]` on its struct declares title, unit, meaning and the reason
//! for a null beside the field. The tables of `docs/reference/json.md`, the titles of printed tables, the list of unknowns in each document and the
//! page's types come from there.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

pub(crate) use vramline_derive::{Cells, Document};

use serde::Serialize;

use crate::units::{Bytes, Nanos};

/// A value of a document.
pub trait Described {
    /// What such values look like.
    fn shape() -> Shape;

    /// Adds the reasons of the nulls inside it.
    fn explain(&self, _place: &Place<'_>, _unknowns: &mut Unknowns) {}

    /// Adds the reason where the value itself, or an element of it, is null.
    fn explain_null(&self, _place: &Place<'_>, _reason: &dyn Fn() -> Reason, _unknowns: &mut Unknowns) {}
}

/// A closed set of words.
pub trait Worded {
    /// All of them.
    fn words() -> Vec<&'static str>;
}

/// What a value looks like in JSON.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A number, a text or a bool.
    Scalar {
        /// What it counts, or what sort of value it is.
        unit: &'static str,
        /// Its type in TypeScript.
        script: &'static str,
    },
    /// One of a closed set of words.
    Word(Vec<&'static str>),
    /// A value or null.
    Optional(Box<Shape>),
    /// A list.
    List(Box<Shape>),
    /// One value for each of a closed set of words.
    Table(Vec<&'static str>, Box<Shape>),
    /// An object.
    Object {
        /// The struct.
        name: &'static str,
        /// Its fields.
        fields: Vec<FieldShape>,
    },
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct FieldShape {
    /// Its name in the JSON.
    pub name: &'static str,
    /// What a column of it is headed with.
    pub title: &'static str,
    /// What its numbers count, where the type does not tell.
    pub unit: Option<&'static str>,
    /// What it says.
    pub meaning: &'static str,
    /// The reason for a null, where it is always the same.
    pub null: Option<&'static str>,
    /// Whether it may be missing altogether.
    pub may_be_absent: bool,
    /// What its values look like.
    pub shape: Shape,
}

/// A line of the table of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path in the document, `[]` for each element.
    pub path: String,
    /// What its numbers count, or what sort of value it is.
    pub unit: String,
    /// What it says.
    pub meaning: &'static str,
}

/// Every field of a document, in order.
#[must_use]
pub fn entries<T: Described>() -> Vec<Entry> {
    let mut entries = Vec::new();
    T::shape().add_entries("", &mut entries);
    entries
}

impl Shape {
    fn add_entries(&self, path: &str, entries: &mut Vec<Entry>) {
        match self {
            Shape::Object { fields, .. } => {
                for field in fields {
                    field.add_entries(path, entries);
                }
            }
            Shape::Optional(inner) => inner.add_entries(path, entries),
            Shape::List(inner) => inner.add_entries(&format!("{path}[]"), entries),
            Shape::Scalar { .. } | Shape::Word(_) | Shape::Table(..) => {}
        }
    }

    /// The unit of a value, or of the elements of a list; `told` where the field says it.
    fn unit(&self, told: Option<&str>) -> String {
        match self {
            Shape::Scalar { unit, .. } => told.unwrap_or(unit).to_owned(),
            Shape::Word(_) => told.unwrap_or("word").to_owned(),
            Shape::Optional(inner) => format!("{} or null", inner.unit(told)),
            Shape::List(inner) => inner.unit(told),
            Shape::Table(_, inner) => format!("{} for each", inner.unit(told)),
            Shape::Object { .. } => "object".to_owned(),
        }
    }

    fn is_list(&self) -> bool {
        matches!(self, Shape::List(_))
    }

    /// The type in TypeScript; the objects in it are added to `objects`.
    fn script(&self, objects: &mut BTreeMap<&'static str, String>) -> String {
        let words =
            |words: &[&str]| words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" | ");
        match self {
            Shape::Scalar { script, .. } => (*script).to_owned(),
            Shape::Word(all) => words(all),
            Shape::Optional(inner) => format!("{} | null", inner.script(objects)),
            Shape::List(inner) => match inner.script(objects) {
                many if many.contains(" | ") => format!("({many})[]"),
                one => format!("{one}[]"),
            },
            Shape::Table(all, inner) => format!("Record<{}, {}>", words(all), inner.script(objects)),
            Shape::Object { name, fields } => {
                if !objects.contains_key(name) {
                    objects.insert(name, String::new());
                    let mut text = format!("export interface {name} {{\n");
                    for field in fields {
                        let mark = if field.may_be_absent { "?" } else { "" };
                        // What is absent instead of null is not null.
                        let shape = match &field.shape {
                            Shape::Optional(inner) if field.may_be_absent => inner,
                            shape => shape,
                        };
                        let _ = writeln!(text, "  {}{mark}: {};", field.name, shape.script(objects));
                    }
                    text.push_str("}\n");
                    objects.insert(name, text);
                }
                (*name).to_owned()
            }
        }
    }
}

impl FieldShape {
    fn add_entries(&self, path: &str, entries: &mut Vec<Entry>) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", self.name);
        let shown = if self.shape.is_list() { format!("{path}[]") } else { path.clone() };
        let mut unit = self.shape.unit(self.unit);
        if self.may_be_absent && !unit.ends_with("null") {
            unit.push_str(" or absent");
        } else if self.may_be_absent {
            unit = unit.replace("or null", "or absent");
        }
        entries.push(Entry { path: shown, unit, meaning: self.meaning });
        self.shape.add_entries(&path, entries);
    }
}

/// The types of documents in TypeScript.
#[must_use]
pub fn typescript(documents: &[Shape]) -> String {
    let mut objects = BTreeMap::new();
    for document in documents {
        document.script(&mut objects);
    }
    objects.into_values().collect::<Vec<String>>().join("\n")
}

/// Why a value is null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// Why it is unknown.
    pub text: Cow<'static, str>,
    /// The setting that would make it known.
    pub switch: Option<Cow<'static, str>>,
}

impl Reason {
    /// A reason, and the setting that would make the value known.
    pub(crate) fn new(text: impl Into<Cow<'static, str>>, switch: Option<&'static str>) -> Reason {
        Reason { text: text.into(), switch: switch.map(Cow::Borrowed) }
    }
}

/// A place in a document.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    inside: Option<&'a Place<'a>>,
    step: Step,
    /// Whether the elements of this list are distinguished.
    has_places: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Whole,
    Field(&'static str),
    Element(Option<usize>),
}

impl<'a> Place<'a> {
    /// The document itself.
    const WHOLE: Place<'static> = Place { inside: None, step: Step::Whole, has_places: false };

    /// A field of what is here.
    #[must_use]
    pub fn field(&'a self, name: &'static str, has_places: bool) -> Place<'a> {
        Place { inside: Some(self), step: Step::Field(name), has_places }
    }

    fn element(&'a self, at: usize) -> Place<'a> {
        Place { inside: Some(self), step: Step::Element(self.has_places.then_some(at)), has_places: false }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(inside) = self.inside else { return Ok(()) };
        inside.fmt(out)?;
        match self.step {
            Step::Field(name) if matches!(inside.step, Step::Whole) => out.write_str(name),
            Step::Field(name) => write!(out, ".{name}"),
            Step::Element(Some(at)) => write!(out, "[{at}]"),
            Step::Element(None) => out.write_str("[]"),
            Step::Whole => Ok(()),
        }
    }
}

/// Why a value of a report is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Document)]
pub struct Unknown {
    /// The path of the null.
    pub path: String,
    /// Why it is unknown.
    pub reason: String,
    /// The setting that would make it known.
    #[field(null = "no setting makes it known")]
    pub switch: Option<String>,
}

/// The nulls of a document with their reasons, each place once.
#[derive(Debug, Default)]
pub struct Unknowns {
    list: Vec<Unknown>,
    known: BTreeSet<String>,
}

impl Unknowns {
    /// The reasons of all nulls of a document.
    pub(crate) fn of(document: &impl Described) -> Vec<Unknown> {
        let mut unknowns = Unknowns::default();
        document.explain(&Place::WHOLE, &mut unknowns);
        unknowns.list
    }

    /// Adds a reason, unless the place has one.
    pub fn add(&mut self, place: &Place<'_>, reason: Reason) {
        let path = place.to_string();
        if self.known.insert(path.clone()) {
            let switch = reason.switch.map(Cow::into_owned);
            self.list.push(Unknown { path, reason: reason.text.into_owned(), switch });
        }
    }
}

/// A flat document as a row of a table: `#[derive(Cells)]`.
pub trait Cells: Described {
    /// Its values, in the order of its fields.
    fn cells(&self) -> Vec<Cell<'_>>;
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Unknown.
    Null,
    /// A whole number.
    Int(i64),
    /// Another number.
    Real(f64),
    /// Yes or no.
    Bool(bool),
    /// A text.
    Text(&'a str),
    /// Days since 1970-01-01.
    Day(i32),
}

/// A value that fits into a cell.
pub trait AsCell {
    /// The cell.
    fn cell(&self) -> Cell<'_>;
}

/// A day of the calendar in UTC, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Day(pub i32);

impl Day {
    /// The day of a moment.
    #[must_use]
    pub fn of(moment: Nanos) -> Option<Day> {
        const NANOS_PER_DAY: i64 = 86_400_000_000_000;
        i32::try_from(moment.0.div_euclid(NANOS_PER_DAY)).ok().map(Day)
    }
}

macro_rules! cells {
    ($($type:ty: $value:ident => $cell:expr;)+) => {
        $(impl AsCell for $type {
            fn cell(&self) -> Cell<'_> {
                let $value = self;
                $cell
            }
        })+
    };
}

/// A number that does not fit is the largest that does: no real figure is that large.
fn whole(number: u64) -> Cell<'static> {
    Cell::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

cells! {
    Bytes: value => whole(value.0);
    Nanos: value => Cell::Int(value.0);
    String: value => Cell::Text(value);
    &'static str: value => Cell::Text(value);
    bool: value => Cell::Bool(*value);
    u64: value => whole(*value);
    usize: value => whole(*value as u64);
    i32: value => Cell::Int(i64::from(*value));
    i64: value => Cell::Int(*value);
    f64: value => Cell::Real(*value);
    Day: value => Cell::Day(value.0);
}

impl<T: AsCell> AsCell for Option<T> {
    fn cell(&self) -> Cell<'_> {
        self.as_ref().map_or(Cell::Null, AsCell::cell)
    }
}

macro_rules! scalars {
    ($($type:ty: $unit:literal, $script:literal;)+) => {
        $(impl Described for $type {
            fn shape() -> Shape {
                Shape::Scalar { unit: $unit, script: $script }
            }
        })+
    };
}

scalars! {
    Bytes: "bytes", "number";
    Nanos: "ns", "number";
    String: "text", "string";
    &'static str: "word", "string";
    Day: "date", "string";
    bool: "bool", "boolean";
    u32: "number", "number";
    u64: "number", "number";
    usize: "number", "number";
    i32: "number", "number";
    i64: "number", "number";
    f32: "fraction", "number";
    f64: "fraction", "number";
}

impl<T: Described> Described for Option<T> {
    fn shape() -> Shape {
        Shape::Optional(Box::new(T::shape()))
    }

    fn explain(&self, place: &Place<'_>, unknowns: &mut Unknowns) {
        if let Some(value) = self {
            value.explain(place, unknowns);
        }
    }

    fn explain_null(&self, place: &Place<'_>, reason: &dyn Fn() -> Reason, unknowns: &mut Unknowns) {
        if self.is_none() {
            unknowns.add(place, reason());
        }
    }
}

impl<T: Described> Described for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    fn explain(&self, place: &Place<'_>, unknowns: &mut Unknowns) {
        for (at, value) in self.iter().enumerate() {
            value.explain(&place.element(at), unknowns);
        }
    }

    fn explain_null(&self, place: &Place<'_>, reason: &dyn Fn() -> Reason, unknowns: &mut Unknowns) {
        for (at, value) in self.iter().enumerate() {
            value.explain_null(&place.element(at), reason, unknowns);
        }
    }
}

impl<K: Worded, T: Described> Described for BTreeMap<K, T> {
    fn shape() -> Shape {
        Shape::Table(K::words(), Box::new(T::shape()))
    }
}
