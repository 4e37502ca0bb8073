//! How a call to the API server can fail.

use std::error::Error;
use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

/// A failed call, sorted by what can be done about it. Its text is complete: kube's errors print
/// their sources and expose them too, so that here nothing is left to chain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApiError {
    /// RBAC or an admission plugin says no.
    #[error("forbidden by the API server: {0}")]
    Forbidden(String),
    /// The token or certificate is not accepted; the kubelet may be about to renew it.
    #[error("not authenticated at the API server: {0}")]
    Unauthorized(String),
    /// There is no such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// The object is not in the state that the call was made for: read it again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// An object of that name exists.
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// The API server does not accept the object.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The resource version or continue token is too old: list again.
    #[error("too old a version: {0}")]
    Expired(String),
    /// The API server is busy.
    #[error("the API server is busy: {message}")]
    TooManyRequests {
        /// How long it asks us to wait, if it says.
        retry_after: Option<Duration>,
        /// What it says.
        message: String,
    },
    /// No answer in time; the call may or may not have had its effect.
    #[error("no answer from the API server in time: {0}")]
    Timeout(String),
    /// The connection failed; the call may or may not have had its effect.
    #[error("the API server can't be reached: {0}")]
    Unreachable(String),
    /// The answer can't be decoded.
    #[error("unreadable answer from the API server: {0}")]
    Unreadable(String),
    /// Another HTTP status.
    #[error("the API server answered {code}: {message}")]
    Other {
        /// The status code.
        code: u16,
        /// What it says.
        message: String,
    },
}

impl ApiError {
    /// The kind as one CamelCase word, for metric labels and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "Forbidden",
            Self::Unauthorized(_) => "Unauthorized",
            Self::NotFound(_) => "NotFound",
            Self::Conflict(_) => "Conflict",
            Self::AlreadyExists(_) => "AlreadyExists",
            Self::Invalid(_) => "Invalid",
            Self::Expired(_) => "Expired",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Timeout(_) => "Timeout",
            Self::Unreachable(_) => "Unreachable",
            Self::Unreadable(_) => "Unreadable",
            Self::Other { .. } => "Other",
        }
    }

    /// Whether the very same call may succeed later although nobody changes anything. A conflict is
    /// not among them: what was decided must be decided anew.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unauthorized(_)
            | Self::TooManyRequests { .. }
            | Self::Timeout(_)
            | Self::Unreachable(_) => true,
            Self::Other { code, .. } => *code >= 500,
            Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::AlreadyExists(_)
            | Self::Invalid(_)
            | Self::Expired(_)
            | Self::Unreadable(_) => false,
        }
    }

    /// How long the API server asks us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        let seconds = status.details.as_ref().map(|d| d.retry_after_seconds);
        let retry_after = seconds
            .filter(|s| *s > 0)
            .map(|s| Duration::from_secs(u64::from(s)));
        let message = if status.message.is_empty() {
            status.reason.clone()
        } else {
            status.message.clone()
        };
        if is_another(&status) {
            return Self::Conflict(message);
        }
        // By code, because kube's own predicates say no to a status without a reason.
        match (status.code, status.reason.as_str()) {
            (_, "AlreadyExists") => Self::AlreadyExists(message),
            (403, _) => Self::Forbidden(message),
            (404, _) => Self::NotFound(message),
            (409, _) => Self::Conflict(message),
            (400 | 413 | 415 | 422, _) => Self::Invalid(message),
            (401, _) => Self::Unauthorized(message),
            (410, _) | (_, "Expired" | "Gone") => Self::Expired(message),
            // 503 with a time to wait is how a server asks for patience while it starts.
            (429, _) => Self::TooManyRequests {
                retry_after,
                message,
            },
            (503, _) if retry_after.is_some() => Self::TooManyRequests {
                retry_after,
                message,
            },
            (504, _) | (_, "Timeout" | "ServerTimeout") => Self::Timeout(message),
            (code, _) => Self::Other { code, message },
        }
    }
}

/// A patch that carries a UID and meets another object is told that the field is immutable (seen on
/// 1.37), which is no fault of the patch.
fn is_another(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422
        && causes
            .into_iter()
            .any(|cause| cause.field == "metadata.uid")
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::SerdeError(source) => Self::Unreadable(source.to_string()),
            kube::Error::FromUtf8(source) => Self::Unreadable(source.to_string()),
            kube::Error::Auth(source) => Self::Unauthorized(causes(&source)),
            kube::Error::HyperError(source) => Self::Unreachable(causes(&source)),
            kube::Error::Service(source) => Self::Unreachable(causes(&*source)),
            kube::Error::ReadEvents(source) => Self::Unreachable(causes(&source)),
            other => Self::Unreachable(causes(&other)),
        }
    }
}

/// An error and its sources, leaving out a source that the text before has already spelled out.
pub(super) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(value: serde_json::Value) -> ApiError {
        let status: Status = serde_json::from_value(value).unwrap();
        kube::Error::Api(status.boxed()).into()
    }

    #[test]
    fn statuses_are_sorted() {
        for (code, reason, want) in [
            (403, "Forbidden", "Forbidden"),
            (401, "Unauthorized", "Unauthorized"),
            (404, "NotFound", "NotFound"),
            (409, "Conflict", "Conflict"),
            (409, "AlreadyExists", "AlreadyExists"),
            (422, "Invalid", "Invalid"),
            (400, "BadRequest", "Invalid"),
            (410, "Expired", "Expired"),
            (410, "Gone", "Expired"),
            (429, "TooManyRequests", "TooManyRequests"),
            (504, "Timeout", "Timeout"),
            (500, "ServerTimeout", "Timeout"),
            (500, "InternalError", "Other"),
            (503, "ServiceUnavailable", "Other"),
            (404, "", "NotFound"),
        ] {
            let error = answer(json!({"code": code, "reason": reason, "message": "m"}));
            assert_eq!(error.reason(), want, "{code} {reason}");
        }
    }

    #[test]
    fn another_object_of_the_name_is_a_conflict() {
        let causes = json!([{"reason": "FieldValueInvalid", "message": "field is immutable",
            "field": "metadata.uid"}]);
        let details = json!({"causes": causes});
        let status = json!({"code": 422, "reason": "Invalid", "details": details});
        assert_eq!(answer(status).reason(), "Conflict");
    }

    #[test]
    fn only_what_passes_by_itself_is_retryable() {
        for (code, retryable) in [
            (400, false),
            (401, true),
            (403, false),
            (404, false),
            (409, false),
            (422, false),
            (429, true),
            (500, true),
            (503, true),
            (504, true),
        ] {
            let error = answer(json!({"code": code, "message": "m"}));
            assert_eq!(error.is_retryable(), retryable, "{error}");
        }
        assert!(ApiError::Timeout(String::new()).is_retryable());
        assert!(ApiError::Unreachable(String::new()).is_retryable());
    }

    #[test]
    fn the_time_to_wait_is_read() {
        let details = json!({"retryAfterSeconds": 3});
        for code in [429, 503] {
            let error = answer(json!({"code": code, "message": "m", "details": details}));
            assert_eq!(error.retry_after(), Some(Duration::from_secs(3)), "{code}");
        }
        let error = answer(json!({"code": 429, "message": "m"}));
        assert_eq!(error.retry_after(), None);
    }

    #[test]
    fn no_text_is_said_twice() {
        let io = std::io::Error::other("connection refused");
        let error: ApiError = kube::Error::ReadEvents(io).into();
        assert_eq!(error.to_string().matches("connection refused").count(), 1);
        assert!(error.source().is_none());
        let error = answer(json!({"code": 403, "reason": "Forbidden", "message": "no such right"}));
        assert_eq!(
            error.to_string(),
            "forbidden by the API server: no such right"
        );
    }
}
