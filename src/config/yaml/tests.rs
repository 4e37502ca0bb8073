use super::*;

fn map(text: &str) -> Map {
    match parse(text) {
        Ok(Some(Node {
            value: Value::Map(map),
            ..
        })) => map,
        other => panic!("{other:?}"),
    }
}

fn text<'a>(map: &'a Map, key: &str) -> &'a Value {
    &map.entries
        .iter()
        .find(|entry| entry.key == key)
        .expect("the key is there")
        .value
        .value
}

fn is_text(value: &Value, want: &str) -> bool {
    *value == Value::Scalar(Scalar::Text(want.to_owned()))
}

#[test]
fn keys_and_values_have_lines() {
    let map = map("# first\na: 1\n\nb:\n  - x\n  - y\n");
    let lines: Vec<_> = map
        .entries
        .iter()
        .map(|e| (e.key.as_str(), e.line))
        .collect();
    assert_eq!(lines, [("a", 2), ("b", 4)]);
    let Value::List(items) = text(&map, "b") else {
        panic!("a list")
    };
    assert_eq!(
        items.iter().map(|item| item.line).collect::<Vec<_>>(),
        [5, 6]
    );
}

#[test]
fn quoted_scalars_are_text() {
    let map = map("a: 'yes'\nb: \"012\"\nc: yes\nd: !!str 012\ne: |\n  yes\n");
    assert!(is_text(text(&map, "a"), "yes"));
    assert!(is_text(text(&map, "b"), "012"));
    assert_eq!(*text(&map, "c"), Value::Scalar(Scalar::Bool(true)));
    assert!(is_text(text(&map, "d"), "012"));
    assert!(is_text(text(&map, "e"), "yes\n"));
}

#[test]
fn cfg_03_json_is_a_value() {
    let map = map(r#"{"a": ["b", 1], "c": {"d": null}}"#);
    assert_eq!(map.entries.len(), 2);
    assert!(matches!(text(&map, "a"), Value::List(items) if items.len() == 2));
}

#[test]
fn cfg_03_anchors_and_merge_keys_work() {
    let map = map("one: &base {a: 1, b: 2}\ntwo:\n  <<: *base\n  b: 3\nthree: *base\n");
    let Value::Map(merged) = text(&map, "two") else {
        panic!("a map")
    };
    assert_eq!(*text(merged, "a"), Value::Scalar(Scalar::Int(1)));
    assert_eq!(*text(merged, "b"), Value::Scalar(Scalar::Int(3)));
    assert_eq!(merged.repeated, []);
    assert_eq!(text(&map, "three"), text(&map, "one"));
}

#[test]
fn cfg_04_the_last_of_repeated_keys_wins() {
    let map = map("a: 1\nb: 2\na: 3\n");
    assert_eq!(*text(&map, "a"), Value::Scalar(Scalar::Int(3)));
    assert_eq!(map.repeated, [(3, "a".to_owned())]);
}

#[test]
fn nothing_is_no_value() {
    assert_eq!(parse(""), Ok(None));
    assert_eq!(parse("# only words\n"), Ok(None));
    assert!(parse("~").unwrap().unwrap().is_null());
}

#[test]
fn what_is_malformed_has_a_line() {
    for (text, line) in [
        ("a: 1\nb: [c\n", 2),
        ("a: b\n---\nc: d\n", 2),
        ("a: 1\n? [b]\n: c\n", 2),
        ("~: x\n", 1),
        ("a: &a [*a]\n", 1),
        ("a: *nobody\n", 1),
        ("a: 1\n<<: text\n", 2),
    ] {
        assert_eq!(
            parse(text).map_err(|error| error.line),
            Err(line),
            "{text:?}"
        );
    }
}

#[test]
fn aliases_can_not_grow_without_bounds() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..30 {
        let last = n - 1;
        text.push_str(&format!(
            "a{n}: &a{n} [*a{last}, *a{last}, *a{last}, *a{last}]\n"
        ));
    }
    assert!(parse(&text).unwrap_err().text.contains("grow"));
}

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{a: ", "- "] {
        assert!(parse(&open.repeat(10_000)).is_err());
    }
}
