//! Writes the vectors as seeds: `seed VECTORS CORPUS`.

use std::{fs, path::Path};

use serde::Deserialize as _;
use serde_json::{Deserializer, Value as Json};

/// Longer vectors only show boundaries of lengths.
const LONGEST: usize = 4096;
const HEAD_LEN: usize = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (vectors, corpus) = arguments
        .next()
        .zip(arguments.next())
        .expect("VECTORS CORPUS");
    let (vectors, corpus) = (Path::new(&vectors), Path::new(&corpus));
    for file in ["hessian", "java_written"] {
        for (name, bytes) in load(&vectors.join(file).with_extension("json")) {
            write(corpus, "reader", &name, &bytes);
        }
    }
    for file in ["frames", "java_frames", "captured", "fastjson2", "streams"] {
        for (name, bytes) in load(&vectors.join(file).with_extension("json")) {
            write(corpus, "frame", &name, &[b"\x07", &bytes[..]].concat());
            write(corpus, "mux", &name, &bytes);
            if let Some((head, body)) = bytes.split_at_checked(HEAD_LEN) {
                write(corpus, "peek", &name, &[&head[2..3], body].concat());
            }
        }
    }
    for (name, body) in FOREIGN {
        write(corpus, "peek", name, body);
    }
}

fn load(file: &Path) -> Vec<(String, Vec<u8>)> {
    let text = fs::read_to_string(file).expect("a vector file");
    let mut reader = Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    let json = Json::deserialize(&mut reader).expect("JSON");
    let vectors = json["vectors"].as_array().expect("vectors").iter();
    vectors
        .filter_map(|v| Some((v["name"].as_str()?.to_owned(), unhex(v["hex"].as_str()?))))
        .collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hex");
        u8::from_str_radix(pair, 16).expect("hex")
    };
    hex.as_bytes().chunks(2).map(pair).collect()
}

fn write(corpus: &Path, target: &str, name: &str, bytes: &[u8]) {
    if bytes.len() <= LONGEST {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(name), bytes).expect("a seed");
    }
}

/// A call in each of the other serializations; the id comes first.
const FOREIGN: [(&str, &[u8]); 8] = [
    (
        "json-lines",
        b"\x10\"2.0.2\"\n\"a.B\"\nnull\n\"$invoke\"\n\"Ljava/lang/String;I\"\n\"x\\u00e9\"\n7\n{\"path\":\"p\",\"m\":{\"a\":[1]},\"timeout\":5}\n",
    ),
    (
        "json-wrapped",
        b"\x15\"2.0.2\"\r\n\"a.B\"\r\n\"\"\r\n\"m\"\r\n\"\"\r\n{\"attachments\":{\"path\":\"p\"},\"attachmentsV2\":{}}\r\n",
    ),
    (
        "json-lengths",
        b"\x06\0\0\0\x04null\0\0\0\x05\"a.B\"\0\0\0\x04null\0\0\0\x03\"m\"\0\0\0\x02\"\"\0\0\0\x0a{\"n\":1000L",
    ),
    (
        "protobuf",
        b"\x16\x07\x0a\x052.0.2\x05\x0a\x03a.B\x00\x03\x0a\x01m\x03\x0a\x01I\x02\x08\x07\x0b\x0a\x09\x0a\x04path\x12\x01p",
    ),
    ("msgpack", b"\x1b\xa52.0.2\xa3a.B\xc0\xa1m\xa1I\x07\x82\xa4path\xa1p\xa1m\x91\x81\xa1x\xcb12345678"),
    ("java", b"\x03\xac\xed\0\x05\x77\x12\0\0\0\x01\0\x01x\0\0\0\x03\0\x03a.B\xff\x77\x03\xff\xff\xff\x77\x10\0\0\0\x01\0\x01m\0\0\0\0\0\0"),
    ("protostuff", b"\x0c\0\0\0\x01x\0\0\0\x03a.B\0\0\0\0\0\0\0\x01m\0\0\0\0"),
    ("avro", b"\x0b\x02x\x06a.B\0\x02m\0"),
];
