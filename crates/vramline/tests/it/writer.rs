//! Writes traces, in every form that the format allows and in some that it does not.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn varint(mut self, field: u64, value: u64) -> Self {
        put_varint(&mut self.0, field << 3);
        put_varint(&mut self.0, value);
        self
    }

    pub(crate) fn int(self, field: u64, value: i64) -> Self {
        self.varint(field, value.cast_unsigned())
    }

    pub(crate) fn double(mut self, field: u64, value: f64) -> Self {
        put_varint(&mut self.0, field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, field: u64, bytes: impl AsRef<[u8]>) -> Self {
        put_varint(&mut self.0, field << 3 | 2);
        put_varint(&mut self.0, bytes.as_ref().len() as u64);
        self.0.extend(bytes.as_ref());
        self
    }

    pub(crate) fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    /// A length that is not the truth.
    pub(crate) fn lie(mut self, field: u64, length: u64, bytes: &[u8]) -> Self {
        put_varint(&mut self.0, field << 3 | 2);
        put_varint(&mut self.0, length);
        self.0.extend(bytes);
        self
    }
}

pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// How a stat's value is written.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(String),
    Ref(String),
    Packed(String),
}

/// A plane with its tables, which are written behind the lines, as profilers do.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    pub(crate) name: String,
    pub(crate) lines: Vec<Message>,
    events: Vec<String>,
    stats: Vec<String>,
    /// Ids begin here.
    pub(crate) first_id: u64,
    own_stats: Vec<Message>,
}

impl Plane {
    pub(crate) fn host() -> Plane {
        Plane::named("/host:CPU")
    }

    pub(crate) fn named(name: &str) -> Plane {
        Plane {
            name: name.to_owned(),
            lines: Vec::new(),
            events: Vec::new(),
            stats: Vec::new(),
            first_id: 1,
            own_stats: Vec::new(),
        }
    }

    fn id(names: &mut Vec<String>, name: &str, first: u64) -> u64 {
        let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        first + at as u64
    }

    pub(crate) fn event_id(&mut self, name: &str) -> u64 {
        Plane::id(&mut self.events, name, self.first_id)
    }

    pub(crate) fn stat_id(&mut self, name: &str) -> u64 {
        Plane::id(&mut self.stats, name, self.first_id)
    }

    pub(crate) fn stat(&mut self, name: &str, value: &Value) -> Message {
        let stat = Message::default().varint(1, self.stat_id(name));
        match value {
            Value::Int(value) => stat.int(4, *value),
            Value::Uint(value) => stat.varint(3, *value),
            Value::Double(value) => stat.double(2, *value),
            Value::Text(text) => stat.bytes(5, text),
            Value::Bytes(text) => stat.bytes(6, text),
            Value::Ref(text) => {
                let id = self.stat_id(text);
                stat.varint(7, id)
            }
            Value::Packed(text) => {
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                std::io::Write::write_all(&mut packer, text.as_bytes()).unwrap();
                stat.bytes(8, packer.finish().unwrap())
            }
        }
    }

    /// An event with stats.
    pub(crate) fn event(
        &mut self,
        name: &str,
        offset: i64,
        duration: i64,
        stats: &[(&str, Value)],
    ) -> Message {
        let mut event = Message::default().varint(1, self.event_id(name)).int(2, offset);
        if duration != 0 {
            event = event.int(3, duration);
        }
        stats.iter().fold(event, |event, (name, value)| {
            let stat = self.stat(name, value);
            event.message(4, &stat)
        })
    }

    /// A fact about the plane itself.
    pub(crate) fn fact(&mut self, name: &str, value: &Value) {
        let stat = self.stat(name, value);
        self.own_stats.push(stat);
    }

    pub(crate) fn line(&mut self, name: &str, timestamp: i64, events: &[Message]) {
        let line = Message::default().varint(1, self.lines.len() as u64 + 1).bytes(2, name).int(3, timestamp);
        self.lines.push(events.iter().fold(line, |line, event| line.message(4, event)));
    }

    pub(crate) fn message(&self) -> Message {
        let mut plane = Message::default().bytes(2, &self.name);
        for line in &self.lines {
            plane = plane.message(3, line);
        }
        self.tables().into_iter().fold(plane, |plane, (field, entry)| plane.message(field, &entry))
    }

    /// The entries of the tables, with the field that each is in.
    pub(crate) fn tables(&self) -> Vec<(u64, Message)> {
        let entry = |(name, id): (&String, u64)| {
            let value = Message::default().varint(1, id).bytes(2, name);
            Message::default().varint(1, id).message(2, &value)
        };
        let events = self.events.iter().zip(self.first_id..).map(entry).map(|entry| (4, entry));
        let stats = self.stats.iter().zip(self.first_id..).map(entry).map(|entry| (5, entry));
        let own = self.own_stats.iter().map(|stat| (6, stat.clone()));
        events.chain(stats).chain(own).collect()
    }
}

/// A file of planes.
pub(crate) fn space(planes: &[&Plane]) -> Vec<u8> {
    let space = planes.iter().fold(Message::default(), |space, plane| space.message(1, &plane.message()));
    space.bytes(4, "writer").0
}

/// The stats of a memory event of a pool that counts right.
pub(crate) fn memory_stats(
    pool: &str,
    requested: i64,
    chunk: i64,
    address: i64,
    in_use: i64,
) -> Vec<(&'static str, Value)> {
    vec![
        ("allocator_name", Value::Ref(pool.to_owned())),
        ("bytes_reserved", Value::Int(0)),
        ("bytes_allocated", Value::Int(in_use)),
        ("bytes_available", Value::Int(1_000_000i64.wrapping_sub(in_use))),
        ("fragmentation", Value::Int(0)),
        ("peak_bytes_in_use", Value::Int(in_use)),
        ("requested_bytes", Value::Int(requested)),
        ("allocation_bytes", Value::Int(chunk)),
        ("addr", Value::Int(address)),
        ("id", Value::Int(7)),
        ("data_type", Value::Int(1)),
    ]
}
