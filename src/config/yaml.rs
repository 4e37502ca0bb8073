//! YAML as a tree that keeps what upstream's dialect and a finding need: each scalar by the rules of
//! YAML 1.1, and its line.
//!
//! Keys are text, as in JSON; a repeated key is the last one, and is remembered. Anchors, aliases and
//! merge keys work inside one value (contract CFG-03), up to a limit on what aliases may grow to.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use super::scalar::Scalar;

/// What aliases may add in all: nodes and bytes of text. A ConfigMap has at most 1 MiB; whatever grows
/// beyond that is an attack or an accident.
const ALIAS_WEIGHT_MAX: usize = 1 << 20;

/// How deep values may nest. A whole ConfigMap needs seven levels.
const DEPTH_MAX: usize = 64;

/// A value and the line it begins on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Map),
}

/// A map in the order of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Map {
    pub(super) entries: Vec<Entry>,
    /// Lines and names of keys that stood there before with the very same spelling.
    pub(super) repeated: Vec<(usize, String)>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Node,
}

/// Why a text is no YAML that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Node {
    /// Whether it stands for "nothing": `null`, `~` or an empty value.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar(Scalar::Null))
    }

    /// How many nodes and bytes of text it has, and how deep it is.
    fn measure(&self) -> (usize, usize) {
        let within = |nodes: &mut dyn Iterator<Item = &Self>| {
            nodes
                .map(Self::measure)
                .fold((1, 0), |(weight, depth), (more, deep)| {
                    (weight + more, depth.max(deep))
                })
        };
        let (weight, depth) = match &self.value {
            Value::Scalar(Scalar::Text(text)) => (1 + text.len(), 0),
            Value::Scalar(_) => (1, 0),
            Value::List(items) => within(&mut items.iter()),
            Value::Map(map) => {
                let keys: usize = map.entries.iter().map(|entry| entry.key.len()).sum();
                let (weight, depth) = within(&mut map.entries.iter().map(|entry| &entry.value));
                (weight + keys, depth)
            }
        };
        (weight, depth + 1)
    }
}

/// Reads one document; `None` when there is nothing in it.
pub(super) fn parse(text: &str) -> Result<Option<Node>, Malformed> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| Malformed {
            line: error.marker().line(),
            text: error.info(),
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root)
}

/// A collection that is not complete yet.
enum Frame {
    List(Vec<Node>),
    Map {
        map: Map,
        index: Index,
        key: Option<(String, usize, bool)>,
    },
}

/// Where the entries of a map are, and whether they came by a merge.
type Index = HashMap<String, (usize, bool)>;

struct Open {
    frame: Frame,
    line: usize,
    anchor: usize,
}

#[derive(Default)]
struct Builder {
    stack: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    /// Complete nodes with an anchor, by its number, with their weight and depth.
    anchors: HashMap<usize, (Node, usize, usize)>,
    alias_weight: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Malformed> {
        let line = span.start.line();
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return malformed(line, "a second document begins; a key has one value");
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let wants_text = tag
                    .as_ref()
                    .is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                let is_typed = tag.as_ref().is_some_and(|tag| {
                    ["bool", "int", "float", "null"]
                        .iter()
                        .any(|t| tag.is_yaml_core_schema_tag(t))
                });
                let plain = style == ScalarStyle::Plain;
                let merge = plain && text == "<<";
                let scalar = match !wants_text && (plain || is_typed) {
                    true => Scalar::plain(&text),
                    false => Scalar::Text(text.into_owned()),
                };
                let node = Node {
                    line,
                    value: Value::Scalar(scalar),
                };
                self.complete(node, anchor, merge)
            }
            Event::SequenceStart(_, anchor, _) => self.open(Frame::List(Vec::new()), line, anchor),
            Event::MappingStart(_, anchor, _) => {
                let (map, index) = (Map::default(), Index::new());
                self.open(
                    Frame::Map {
                        map,
                        index,
                        key: None,
                    },
                    line,
                    anchor,
                )
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open {
                    frame,
                    line,
                    anchor,
                }) = self.stack.pop()
                else {
                    return Ok(());
                };
                let value = match frame {
                    Frame::List(items) => Value::List(items),
                    Frame::Map { map, .. } => Value::Map(map),
                };
                self.complete(Node { line, value }, anchor, false)
            }
            Event::Alias(id) => self.alias(id, line),
            _ => Ok(()),
        }
    }

    fn open(&mut self, frame: Frame, line: usize, anchor: usize) -> Result<(), Malformed> {
        if self.stack.len() >= DEPTH_MAX {
            return malformed(line, "it nests too deep");
        }
        self.stack.push(Open {
            frame,
            line,
            anchor,
        });
        Ok(())
    }

    fn alias(&mut self, id: usize, line: usize) -> Result<(), Malformed> {
        let Some((node, weight, depth)) = self.anchors.get(&id) else {
            return malformed(line, "an alias stands inside what it stands for");
        };
        self.alias_weight += weight;
        if self.alias_weight > ALIAS_WEIGHT_MAX || self.stack.len() + depth > DEPTH_MAX {
            return malformed(line, "its aliases grow beyond all measure");
        }
        let node = node.clone();
        self.complete(node, 0, false)
    }

    /// Puts a complete node where it belongs.
    fn complete(&mut self, node: Node, anchor: usize, merge: bool) -> Result<(), Malformed> {
        if anchor > 0 {
            let (weight, depth) = node.measure();
            self.anchors.insert(anchor, (node.clone(), weight, depth));
        }
        let Some(Open { frame, .. }) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let (map, index, key) = match frame {
            Frame::List(items) => {
                items.push(node);
                return Ok(());
            }
            Frame::Map { map, index, key } => (map, index, key),
        };
        match key.take() {
            None => {
                let line = node.line;
                let text = match node.value {
                    Value::Scalar(scalar) => scalar.into_key(),
                    Value::List(_) | Value::Map(_) => None,
                };
                let Some(text) = text else {
                    return malformed(line, "a key must be text");
                };
                *key = Some((text, line, merge));
            }
            Some((_, line, true)) => merge_into(map, index, node, line)?,
            Some((key, line, false)) => {
                let entry = Entry {
                    key,
                    line,
                    value: node,
                };
                put(map, index, entry, false);
            }
        }
        Ok(())
    }
}

/// Sets a key, and remembers it if it was set before.
fn put(map: &mut Map, index: &mut Index, entry: Entry, merged: bool) {
    let Some((at, was_merged)) = index.get_mut(&entry.key) else {
        index.insert(entry.key.clone(), (map.entries.len(), merged));
        map.entries.push(entry);
        return;
    };
    if !*was_merged && !merged {
        map.repeated.push((entry.line, entry.key.clone()));
    }
    *was_merged = merged;
    if let Some(old) = map.entries.get_mut(*at) {
        *old = entry;
    }
}

/// Does what `<<: ...` says where it stands, as upstream's decoder does: keys after it win over it.
fn merge_into(map: &mut Map, index: &mut Index, node: Node, line: usize) -> Result<(), Malformed> {
    let sources = match node.value {
        // The first map of a list wins.
        Value::List(items) => items.into_iter().rev().collect(),
        _ => vec![node],
    };
    for source in sources {
        let Value::Map(source) = source.value else {
            return malformed(line, "<< takes a map or a list of maps");
        };
        for entry in source.entries {
            put(map, index, entry, true);
        }
    }
    Ok(())
}

fn malformed<T>(line: usize, text: &str) -> Result<T, Malformed> {
    Err(Malformed {
        line,
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests;
