use std::collections::BTreeMap;

use dubbo_proto::hessian2::writer::Writer;
use serde::{Deserialize, Serialize};

use super::*;

/// Through the bytes and back.
fn carried(value: &Value) -> Value {
    let mut bytes = Vec::new();
    value.write(&mut Writer::new(&mut bytes));
    let mut values = values(&bytes, 0, 1).expect("good bytes");
    values.pop().expect("one value")
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "com.foo.Order", rename_all = "camelCase")]
struct Order {
    order_id: i64,
    paid: Option<bool>,
    lines: Vec<Line>,
    notes: BTreeMap<String, f64>,
    state: State,
    raw: Value,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "com.foo.Line")]
struct Line {
    name: String,
    count: u16,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "com.foo.State", rename_all = "UPPERCASE")]
enum State {
    New,
    Sent,
}

fn order() -> Order {
    let line = |name: &str| Line {
        name: name.into(),
        count: 2,
    };
    Order {
        order_id: 1 << 40,
        paid: None,
        lines: vec![line("chair"), line("😀")],
        notes: BTreeMap::from([("a".into(), 1.5)]),
        state: State::Sent,
        raw: Object::class("com.foo.Any")
            .field("at", Value::Date(5))
            .into(),
    }
}

#[test]
fn a_type_comes_back_as_it_went() {
    let value = to_value(&order()).expect("a value");
    let back = carried(&value);
    assert_eq!(back, value);
    assert_eq!(from_value::<Order>(back), Ok(order()));
}

#[test]
fn names_with_a_dot_are_classes_of_java() {
    let Ok(Value::Object(object)) = to_value(&order()) else {
        panic!("no object");
    };
    assert_eq!(object.class_name(), "com.foo.Order");
    let state = Object::class("com.foo.State").field("name", "SENT");
    assert_eq!(object.get("state"), Some(&state.into()));

    #[derive(Serialize)]
    struct Plain {
        id: i32,
    }
    let map = Value::Map {
        type_name: None,
        entries: vec![("id".into(), 1.into())],
    };
    assert_eq!(to_value(&Plain { id: 1 }), Ok(map));
}

#[test]
fn every_kind_of_value_survives_the_wire_and_serde() {
    let all = vec![
        Value::Null,
        true.into(),
        Value::Int(-7),
        Value::Long(7),
        Value::Double(0.25),
        Value::Date(1_700_000_000_000),
        "x".into(),
        Value::Binary(vec![0, 255]),
        Value::List {
            type_name: Some("[int".into()),
            values: vec![1.into()],
        },
        Value::Map {
            type_name: Some("java.util.TreeMap".into()),
            entries: vec![(1.into(), Value::Null)],
        },
        Object::class("a.B").field("c", 1i64).into(),
    ];
    let all = Value::from(all);
    assert_eq!(carried(&all), all);
    assert_eq!(to_value(&all), Ok(all.clone()));
    assert_eq!(from_value(all.clone()), Ok(all));
}

#[test]
fn a_number_is_taken_where_it_fits() {
    assert_eq!(from_value::<u8>(Value::Int(255)), Ok(255));
    assert_eq!(from_value::<i32>(Value::Long(5)), Ok(5));
    assert_eq!(from_value::<f64>(Value::Int(5)), Ok(5.0));
    assert!(from_value::<u8>(Value::Int(256)).is_err());
    assert!(from_value::<i32>(Value::Long(1 << 40)).is_err());
    assert_eq!(to_value(&u64::MAX), Err(Error::Number(u64::MAX)));
}

#[test]
fn what_is_repeated_is_written_out_and_what_contains_itself_is_refused() {
    // A list of a list and a reference to that.
    let twice = values(b"\x7a\x79\x91\x51\x91", 0, 1).expect("good bytes");
    let inner = Value::from(vec![1]);
    assert_eq!(twice, [Value::from(vec![inner.clone(), inner])]);
    assert_eq!(values(b"\x79\x51\x90", 0, 1), Err(Error::Cycle));
}

/// A list of so many lists, each of which refers to the one before seven times.
fn layered(layers: u8) -> Vec<u8> {
    let mut bytes = vec![0x58, 0x90 + layers + 1, 0x79, 0x91];
    for before in 1..=layers {
        bytes.push(0x7f);
        bytes.extend([0x51, 0x90 + before].repeat(7));
    }
    bytes
}

#[test]
fn repetition_is_bounded() {
    assert!(values(&layered(4), 0, 1).is_ok());
    let many = values(&layered(20), 0, 1);
    assert_eq!(many, Err(Error::Limit("values")), "seven to the twentieth");
}

#[test]
fn an_exception_that_is_its_own_cause_is_read() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.int(0);
    writer.object("com.foo.Sold", &["detailMessage", "cause"]);
    writer.text("out");
    writer.reference(0);
    let sold = crate::Exception::new("com.foo.Sold", "out");
    assert_eq!(exception(&bytes), Ok(sold));
    assert_eq!(result(&bytes), Err(Error::Cycle));
}

#[test]
fn values_suggest_descriptors() {
    assert_eq!(Value::from("x").descriptor(), "Ljava/lang/String;");
    assert_eq!(Value::from(1).descriptor(), "I");
    let item = Value::from(Object::class("a.B"));
    assert_eq!(item.descriptor(), "La/B;");
}
