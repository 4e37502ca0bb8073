//! GET of one object and lists: pages, versions, metadata only.

use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use super::object::assign;
use super::resource::{Resource, Target};
use super::selector::Scope;
use super::store::Store;

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// How much of an object the client asked for, by its Accept header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    Metadata,
    MetadataList,
}

impl Form {
    /// Reads an Accept header: the first alternative that this server can produce.
    pub(super) fn parse(accept: &str) -> Self {
        for alternative in accept.split(',') {
            let mut words = alternative.split(';').map(str::trim);
            let is_json = words.next().is_some_and(|kind| kind.ends_with("json"));
            match words.find_map(|word| word.strip_prefix("as=")) {
                Some("PartialObjectMetadata") if is_json => return Self::Metadata,
                Some("PartialObjectMetadataList") if is_json => return Self::MetadataList,
                None if is_json => return Self::Whole,
                _ => {}
            }
        }
        Self::Whole
    }

    /// One object in this form.
    pub(super) fn one(self, resource: &Resource, object: &Value) -> Result<Value, Failure> {
        match self {
            Self::Whole => Ok(resource.shown(object)),
            Self::Metadata => Ok(metadata_of(object)),
            Self::MetadataList => Err(Failure::new(
                406,
                "NotAcceptable",
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a \
                     list (*core.{})",
                    resource.kind,
                ),
            )),
        }
    }
}

/// What a list asks for besides its scope.
#[derive(Clone, Debug, Default)]
pub(super) struct ListOptions {
    /// Zero for no limit.
    pub(super) limit: usize,
    pub(super) resume: String,
    pub(super) version: String,
    pub(super) version_match: String,
    /// A fault: answer as a server that is behind would.
    pub(super) stale_at: Option<u64>,
}

/// GET of one object.
pub(super) fn get(store: &Store, target: &Target, form: Form) -> Result<Value, Failure> {
    let object = store
        .get(target.resource.plural, &target.namespace, &target.name)
        .ok_or_else(|| Failure::not_found(target.resource, &target.name))?;
    form.one(target.resource, object)
}

/// GET of a collection.
pub(super) fn list(
    store: &Store,
    resource: &Resource,
    scope: &Scope,
    form: Form,
    options: &ListOptions,
) -> Result<Value, Failure> {
    if form == Form::Metadata {
        let message = format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*core.{}List)",
            resource.kind,
        );
        return Err(Failure::new(406, "NotAcceptable", message));
    }
    let (version, after) = start(store, options)?;
    let limit = if options.version == "0" {
        0
    } else {
        options.limit
    };
    let mut matching: Vec<Arc<Value>> = store
        .at(resource.plural, version)
        .into_iter()
        .filter(|(key, object)| {
            after.as_ref().is_none_or(|last| key > last) && scope.matches(object)
        })
        .map(|(_, object)| object)
        .collect();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if limit > 0 && matching.len() > limit {
        let rest = matching.len() - limit;
        matching.truncate(limit);
        if let Some(last) = matching.last() {
            metadata["continue"] = json!(token(version, last));
        }
        if !scope.is_selective() {
            metadata["remainingItemCount"] = json!(rest);
        }
    }
    if form == Form::MetadataList {
        let items: Vec<_> = matching.iter().map(|object| metadata_of(object)).collect();
        return Ok(json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata, "items": items,
        }));
    }
    // The real server leaves kind and apiVersion out of the items.
    let items: Vec<_> = matching
        .iter()
        .map(|object| {
            let mut item = resource.shown(object);
            assign(&mut item, "kind", None);
            assign(&mut item, "apiVersion", None);
            item
        })
        .collect();
    Ok(json!({
        "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
        "metadata": metadata, "items": items,
    }))
}

/// Reads a `resourceVersion`; empty and "0" are `None`.
pub(super) fn parse_version(text: &str) -> Result<Option<u64>, String> {
    match text {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: \
                 invalid syntax"
            )
        }),
    }
}

/// The version to list at, and the key after which to go on.
fn start(store: &Store, options: &ListOptions) -> Result<(u64, Option<(String, String)>), Failure> {
    let forbidden = |why: &str| {
        let cause = Cause::forbidden("resourceVersionMatch", why);
        Failure::invalid_options("ListOptions", &cause)
    };
    let wanted = parse_version(&options.version)
        .map_err(|why| Failure::bad_request(format!("invalid resource version: {why}")))?;
    if !options.resume.is_empty() {
        if !options.version_match.is_empty() {
            return Err(forbidden(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !options.version.is_empty() && options.version != "0" {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Failure::bad_request(message));
        }
        let (version, key) = read_token(&options.resume).ok_or_else(|| {
            let message = "invalid continue token: continue key is not valid";
            Failure::bad_request(message)
        })?;
        if version > 0 && !store.remembers(version) {
            let message = "The provided continue parameter is too old to display a consistent \
                list result. You can start a new list without the continue parameter, or use the \
                continue token in this response to retrieve the remainder of the results.";
            return Err(Failure::expired(message).with_resume(write_token(0, &key.0, &key.1)));
        }
        // Version 0 is the token for a rest that need not fit to what came before.
        let version = if version == 0 {
            store.version()
        } else {
            version
        };
        return Ok((version, Some(key)));
    }
    let is_exact = match options.version_match.as_str() {
        "" => options.limit > 0 && wanted.is_some(),
        _ if options.version.is_empty() => {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(forbidden(why));
        }
        "Exact" if wanted.is_none() => {
            let why = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
            return Err(forbidden(why));
        }
        "Exact" => true,
        "NotOlderThan" => false,
        other => {
            let allowed = ["Exact", "NotOlderThan", ""];
            let cause = Cause::unsupported("resourceVersionMatch", &json!(other), &allowed);
            return Err(Failure::invalid_options("ListOptions", &cause));
        }
    };
    let current = options.stale_at.unwrap_or_else(|| store.version());
    match wanted {
        None => Ok((current, None)),
        Some(wanted) if wanted > store.version() => {
            Err(Failure::too_large_version(wanted, store.version()))
        }
        Some(wanted) if is_exact && !store.remembers(wanted) => Err(Failure::expired(
            "The resourceVersion for the provided list is too old.",
        )),
        Some(wanted) if is_exact => Ok((wanted, None)),
        Some(_) => Ok((store.version(), None)),
    }
}

fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

fn token(version: u64, last: &Value) -> String {
    let metadata = &last["metadata"];
    let word = |name: &str| metadata[name].as_str().unwrap_or_default();
    write_token(version, word("namespace"), word("name"))
}

fn write_token(version: u64, namespace: &str, name: &str) -> String {
    let text = json!({"v": TOKEN_VERSION, "rv": version, "start": [namespace, name]}).to_string();
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_token(token: &str) -> Option<(u64, (String, String))> {
    let digits = token.as_bytes();
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let value: Value = serde_json::from_slice(&bytes?).ok()?;
    if value["v"] != TOKEN_VERSION {
        return None;
    }
    let word = |i: usize| value["start"][i].as_str().map(str::to_owned);
    Some((value["rv"].as_u64()?, (word(0)?, word(1)?)))
}
