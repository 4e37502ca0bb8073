//! What was asked of the server, in order.

use std::time::Duration;

use serde_json::Value;

/// What a request wants, in the API's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// GET of one object, or of anything that is no resource.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection as a stream.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// When it came, counted from the start of the server.
    pub(crate) at: Duration,
    /// The resource version of the server when it came.
    pub(crate) version: u64,
    /// The API verb.
    pub(crate) verb: Verb,
    /// The HTTP method.
    pub(crate) method: String,
    /// The path without the query.
    pub(crate) path: String,
    /// The query, not decoded.
    pub(crate) query: String,
    /// The `User-Agent` header.
    pub(crate) user_agent: String,
    /// The `Accept` header.
    pub(crate) accept: String,
    /// The `Content-Type` header.
    pub(crate) content_type: String,
    /// The body; null when there is none or it is not JSON.
    pub(crate) body: Value,
    /// The code of the answer; none while there is no answer, or when there will be none.
    pub(crate) status: Option<u16>,
}

impl Request {
    /// The decoded value of a query parameter; empty when it is not there.
    pub(crate) fn param(&self, name: &str) -> String {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| decode(value))
            .unwrap_or_default()
    }
}

/// Undoes the encoding of a query or path: percent signs, and plus signs for spaces.
pub(super) fn decode(text: &str) -> String {
    let hex = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        match (byte, bytes.get(i + 1..i + 3).and_then(hex)) {
            (b'%', Some(value)) => {
                decoded.push(value);
                i += 2;
            }
            (b'+', _) => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Whether a query parameter says yes.
pub(super) fn is_true(text: &str) -> bool {
    ["true", "1", "True", "t", "T", "TRUE"].contains(&text)
}
