//! Faults: rules that make the server misbehave for some requests.

use std::time::Duration;

use super::journal::{Request, Verb};

/// What happens instead of, before or after the proper answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Refuse with this code: 403, 429, 500, 503, or another.
    Refuse(u16),
    /// Refuse with 429 and this many seconds in `Retry-After`.
    Throttle(u32),
    /// Answer 200 with a body that is not JSON, as a wrong proxy does.
    Garbage,
    /// Wait before doing anything.
    Delay(Duration),
    /// Take the request and never answer.
    Hang,
    /// Close the connection before doing anything.
    Disconnect,
    /// Do what is asked, then close the connection before the answer.
    LoseAnswer,
    /// Close the connection in the middle of the answer, for a watch in its first event.
    Truncate,
    /// 410 Expired: as an error event on a watch, as an error on a continued list.
    Expire,
    /// Answer lists and watches that do not ask for a version as of this version.
    Stale(u64),
    /// Refuse `sendInitialEvents` with 422 as a server without the feature does.
    NoStreamingLists,
}

/// A rule: an [`Action`] and the requests that it is for. Without restrictions it is for all.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    action: Action,
    verb: Option<Verb>,
    method: Option<String>,
    path_prefix: String,
    left: Option<u32>,
}

impl Fault {
    /// A rule for every request, for ever.
    pub(crate) fn new(action: Action) -> Self {
        Self {
            action,
            verb: None,
            method: None,
            path_prefix: String::new(),
            left: None,
        }
    }

    /// Only for requests of that HTTP method.
    pub(crate) fn method(self, method: &str) -> Self {
        Self {
            method: Some(method.to_uppercase()),
            ..self
        }
    }

    /// Only for requests of that API verb, which tells a watch from a list.
    pub(crate) fn verb(self, verb: Verb) -> Self {
        Self {
            verb: Some(verb),
            ..self
        }
    }

    /// Only for paths that begin so.
    pub(crate) fn path(self, prefix: &str) -> Self {
        Self {
            path_prefix: prefix.to_owned(),
            ..self
        }
    }

    /// Only for the next `count` matching requests.
    pub(crate) fn times(self, count: u32) -> Self {
        Self {
            left: Some(count),
            ..self
        }
    }

    fn fits(&self, request: &Request) -> bool {
        let is_about = match self.action {
            Action::NoStreamingLists => request.query.contains("sendInitialEvents"),
            Action::Stale(_) => matches!(request.verb, Verb::List | Verb::Watch),
            Action::Expire => {
                request.verb == Verb::Watch
                    || (request.verb == Verb::List && request.query.contains("continue="))
            }
            _ => true,
        };
        is_about
            && self.left != Some(0)
            && self.verb.is_none_or(|verb| verb == request.verb)
            && self
                .method
                .as_ref()
                .is_none_or(|method| *method == request.method)
            && request.path.starts_with(&self.path_prefix)
    }
}

/// The rules that are in force, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<(u64, Fault)>,
    next: u64,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) -> u64 {
        self.next += 1;
        self.rules.push((self.next, fault));
        self.next
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.rules.retain(|(other, _)| *other != id);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Whether such a request would be refused for want of rights.
    pub(super) fn is_forbidden(&self, request: &Request) -> bool {
        let rule = self.rules.iter().find(|(_, rule)| rule.fits(request));
        rule.is_some_and(|(_, rule)| rule.action == Action::Refuse(403))
    }

    /// The action of the first rule that fits, which it uses up by one.
    pub(super) fn take(&mut self, request: &Request) -> Option<Action> {
        let (_, rule) = self.rules.iter_mut().find(|(_, rule)| rule.fits(request))?;
        if let Some(left) = &mut rule.left {
            *left -= 1;
        }
        Some(rule.action.clone())
    }
}
