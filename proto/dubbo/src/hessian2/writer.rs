//! Writes values in the shortest form, as Java does.

use crate::text::write_unit;

/// Appends values to a body. One writer writes one body, because its tables run through it.
///
/// Source: apache/dubbo-hessian-lite, `Hessian2Output`.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    classes: Vec<(Box<str>, Vec<Box<str>>)>,
    types: Vec<Box<str>>,
}

impl<'o> Writer<'o> {
    /// A writer of a new body at the end of `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self {
            out,
            classes: Vec::new(),
            types: Vec::new(),
        }
    }

    /// Null.
    pub fn null(&mut self) {
        self.out.push(b'N');
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.out.push(if value { b'T' } else { b'F' });
    }

    /// A 32-bit integer.
    pub fn int(&mut self, value: i32) {
        let [high, _, _, low] = value.to_be_bytes();
        let [_, b1, b2, _] = value.to_be_bytes();
        match value {
            -0x10..=0x2f => self.out.push(low.wrapping_add(0x90)),
            -0x800..=0x7ff => self.out.extend([b2.wrapping_add(0xc8), low]),
            -0x40000..=0x3ffff => self.out.extend([b1.wrapping_add(0xd4), b2, low]),
            _ => self.out.extend([b'I', high, b1, b2, low]),
        }
    }

    /// A 64-bit integer.
    pub fn long(&mut self, value: i64) {
        let [_, _, _, _, _, b5, b6, b7] = value.to_be_bytes();
        match value {
            -8..=15 => self.out.push(b7.wrapping_add(0xe0)),
            -0x800..=0x7ff => self.out.extend([b6.wrapping_add(0xf8), b7]),
            -0x40000..=0x3ffff => self.out.extend([b5.wrapping_add(0x3c), b6, b7]),
            _ => match i32::try_from(value) {
                Ok(value) => self.tagged(b'Y', &value.to_be_bytes()),
                Err(_) => self.tagged(b'L', &value.to_be_bytes()),
            },
        }
    }

    /// A double. The sign of -0.0 is lost, as in Java.
    pub fn double(&mut self, value: f64) {
        if let Some(whole) = whole(value) {
            match (whole, i8::try_from(whole), i16::try_from(whole)) {
                (0, ..) => return self.out.push(0x5b),
                (1, ..) => return self.out.push(0x5c),
                (_, Ok(byte), _) => return self.tagged(0x5d, &byte.to_be_bytes()),
                (_, _, Ok(short)) => return self.tagged(0x5e, &short.to_be_bytes()),
                _ => {}
            }
        }
        match thousandths(value) {
            Some(mills) => self.tagged(0x5f, &mills.to_be_bytes()),
            None => self.tagged(b'D', &value.to_be_bytes()),
        }
    }

    /// A date in milliseconds since 1970 UTC.
    pub fn date(&mut self, millis: i64) {
        match i32::try_from(millis / 60_000) {
            Ok(minutes) if millis % 60_000 == 0 => self.tagged(0x4b, &minutes.to_be_bytes()),
            _ => self.tagged(0x4a, &millis.to_be_bytes()),
        }
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        if text.len() <= CHUNK && text.is_ascii() {
            self.last_chunk(text.len());
            self.out.extend_from_slice(text.as_bytes());
            return;
        }
        let units: Vec<u16> = text.encode_utf16().collect();
        self.units(&units);
    }

    /// A string of UTF-16 units, lone surrogates allowed.
    pub fn units(&mut self, mut units: &[u16]) {
        while units.len() > CHUNK {
            let (mut chunk, mut rest) = units.split_at(CHUNK);
            if let Some((0xd800..=0xdbff, before)) = chunk.split_last() {
                chunk = before;
                rest = units.get(before.len()..).unwrap_or_default();
            }
            let [.., high, low] = chunk.len().to_be_bytes();
            self.out.extend([b'R', high, low]);
            self.characters(chunk);
            units = rest;
        }
        self.last_chunk(units.len());
        self.characters(units);
    }

    /// Bytes.
    pub fn binary(&mut self, mut bytes: &[u8]) {
        while let Some((chunk, rest)) = bytes
            .split_at_checked(0xffff)
            .filter(|(_, r)| !r.is_empty())
        {
            self.tagged(b'A', &[0xff, 0xff]);
            self.out.extend_from_slice(chunk);
            bytes = rest;
        }
        let [.., high, low] = bytes.len().to_be_bytes();
        match bytes.len() {
            0..=0x0f => self.out.push(0x20 + low),
            0x10..=0x3ff => self.out.extend([0x34 + high, low]),
            _ => self.out.extend([b'B', high, low]),
        }
        self.out.extend_from_slice(bytes);
    }

    /// The head of a list of `len` values, which follow. Takes a reference slot.
    pub fn list(&mut self, len: u32, type_name: Option<&str>) {
        let short = u8::try_from(len).ok().filter(|len| *len <= 7);
        match (short, type_name) {
            (Some(len), Some(_)) => self.out.push(0x70 + len),
            (Some(len), None) => self.out.push(0x78 + len),
            (None, Some(_)) => self.out.push(b'V'),
            (None, None) => self.out.push(b'X'),
        }
        if let Some(name) = type_name {
            self.type_name(name);
        }
        if short.is_none() {
            self.int(len.cast_signed());
        }
    }

    /// The head of a map, whose keys and values follow in turn, then [`Self::end`]. Takes a
    /// reference slot.
    pub fn map(&mut self, type_name: Option<&str>) {
        match type_name {
            None => self.out.push(b'H'),
            Some(name) => {
                self.out.push(b'M');
                self.type_name(name);
            }
        }
    }

    /// The end of a map.
    pub fn end(&mut self) {
        self.out.push(b'Z');
    }

    /// The head of an object, whose values follow in the order of `fields`. The class is defined
    /// where it comes first. Takes a reference slot.
    pub fn object(&mut self, class: &str, fields: &[&str]) {
        let same = |(name, names): &(Box<str>, Vec<Box<str>>)| {
            **name == *class && names.iter().map(|name| &**name).eq(fields.iter().copied())
        };
        let known = self.classes.iter().position(same);
        let index = known.unwrap_or(self.classes.len());
        if known.is_none() {
            let names = fields.iter().map(|name| Box::from(*name)).collect();
            self.classes.push((class.into(), names));
            self.out.push(b'C');
            self.text(class);
            self.int(i32::try_from(fields.len()).unwrap_or(i32::MAX));
            for field in fields {
                self.text(field);
            }
        }
        match u8::try_from(index) {
            Ok(index @ 0..=0x0f) => self.out.push(0x60 + index),
            _ => {
                self.out.push(b'O');
                self.int(i32::try_from(index).unwrap_or(i32::MAX));
            }
        }
    }

    /// A reference to the list, map or object that took `slot`.
    pub fn reference(&mut self, slot: u32) {
        self.out.push(b'Q');
        self.int(slot.cast_signed());
    }

    /// A map of strings.
    pub fn strings(&mut self, entries: &[(&str, &str)]) {
        self.map(None);
        for (key, value) in entries {
            self.text(key);
            self.text(value);
        }
        self.end();
    }

    /// Values that are encoded already and depend on no table.
    pub fn encoded(&mut self, values: &[u8]) {
        self.out.extend_from_slice(values);
    }

    fn type_name(&mut self, name: &str) {
        match self.types.iter().position(|known| **known == *name) {
            Some(index) => self.int(i32::try_from(index).unwrap_or(i32::MAX)),
            None => {
                self.types.push(name.into());
                self.text(name);
            }
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(bytes);
    }

    /// The head of a string's last chunk, of so many units.
    fn last_chunk(&mut self, units: usize) {
        let [.., high, low] = units.to_be_bytes();
        match units {
            0..=0x1f => self.out.push(low),
            0x20..=0x3ff => self.out.extend([0x30 + high, low]),
            _ => self.out.extend([b'S', high, low]),
        }
    }

    fn characters(&mut self, units: &[u16]) {
        for unit in units {
            write_unit(self.out, *unit);
        }
    }
}

/// The value as an integer, if it is one.
fn whole(value: f64) -> Option<i32> {
    (value.fract() == 0.0).then(|| exact(value)).flatten()
}

/// The value in thousandths, if that loses nothing.
fn thousandths(value: f64) -> Option<i32> {
    let mills = exact((value * 1000.0).trunc())?;
    (0.001 * f64::from(mills))
        .to_bits()
        .eq(&value.to_bits())
        .then_some(mills)
}

fn exact(value: f64) -> Option<i32> {
    let fits = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value);
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    fits.then_some(value as i32)
}

/// Units of a chunk that is not the last.
const CHUNK: usize = 0x8000;
