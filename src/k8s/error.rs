//! What can become of a request to the API server, sorted by what the caller does next.

use std::fmt;
use std::sync::Arc;

use kube::core::Status;
use thiserror::Error;

use super::queue::Next;

/// The request that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kubernetes' verb, as in RBAC.
    pub verb: &'static str,
    /// Kind of the object.
    pub kind: String,
    /// status, or empty for the object itself.
    pub subresource: &'static str,
    /// Name of the object, empty for a list; with its namespace if it has one.
    pub object: String,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, kind, subresource, object } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{verb} {kind}{slash}{subresource} {object}")
    }
}

/// Why a request to the API server did not do what was asked.
#[derive(Debug, Error)]
pub enum ApiError {
    /// Somebody wrote the object since it was read. Observe again; no write was made.
    #[error("{0}: it has changed since it was read")]
    Conflict(Request),
    /// The object is not there, or its name belongs to another UID. No write was made.
    #[error("{0}: it is gone")]
    Gone(Request),
    /// RBAC or an admission policy refused. No write was made.
    #[error("{request}: forbidden: {message}")]
    Forbidden {
        /// What was asked.
        request: Request,
        /// The API server's words.
        message: String,
    },
    /// The API server does not accept the content, or not so much of it. Repeating it will not help. No write was made.
    #[error("{request}: invalid: {message}")]
    Invalid {
        /// What was asked.
        request: Request,
        /// The API server's words.
        message: String,
    },
    /// The credentials were refused (401): the Pod of this process is gone (trap B26). No write
    /// was made, and no new CSI call may be started.
    #[error("{0}: our credentials are no longer accepted")]
    Unauthorized(Request),
    /// A write was asked for without the UID or resourceVersion that would guard it (rule R6). It
    /// was not sent.
    #[error("{0}: not sent, the object to write has no uid or no resourceVersion")]
    Unguarded(Request),
    /// No answer in time. A write may or may not have been made.
    #[error("{request}: no answer in {seconds} s")]
    TimedOut {
        /// What was asked.
        request: Request,
        /// How long was waited.
        seconds: u64,
    },
    /// Anything else, overload included. A write may or may not have been made.
    #[error("{request}: {source}")]
    Other {
        /// What was asked.
        request: Request,
        /// What the client said.
        #[source]
        source: Box<kube::Error>,
    },
    /// What became of a request that was made for others too.
    #[error("{0}")]
    Shared(Arc<ApiError>),
}

impl ApiError {
    /// Sorts the client's error.
    pub(crate) fn sort(request: Request, source: kube::Error) -> Self {
        let kube::Error::Api(status) = &source else {
            return Self::Other { request, source: Box::new(source) };
        };
        if status.code == 401 {
            return Self::Unauthorized(request);
        }
        if is_missing(status) || (status.is_conflict() && is_other_uid(status)) {
            return Self::Gone(request);
        }
        if status.is_conflict() {
            return Self::Conflict(request);
        }
        if status.is_forbidden() {
            return Self::Forbidden { request, message: status.message.clone() };
        }
        if status.is_invalid() || status.code == 400 || is_too_large(status) {
            return Self::Invalid { request, message: without_values(status) };
        }
        Self::Other { request, source: Box::new(source) }
    }

    /// The refusal in words, if this error is one of those that repeating the request will not help.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let is_refused = matches!(self.own(), Self::Forbidden { .. } | Self::Invalid { .. });
        is_refused.then(|| self.to_string())
    }

    /// When a pass that has failed by this is made again.
    #[must_use]
    pub fn next(&self) -> Next {
        match self.own() {
            Self::Conflict(_) => Next::Again,
            Self::TimedOut { .. } => Next::Unanswered,
            Self::Other { .. } if !self.is_undefined() => Next::Unanswered,
            _ => Next::Retry,
        }
    }

    /// Writes into the log that something was not said of an object, which is looked at again. That somebody has written it meanwhile
    /// is ordinary: it is no warning.
    pub fn log(&self, object: impl fmt::Display, what: &str) {
        if matches!(self.own(), Self::Conflict(_)) {
            tracing::debug!(%object, error = %self, "{what}");
        } else {
            tracing::warn!(%object, error = %self, "{what}");
        }
    }

    /// Whether the API server knows no such kind: its definition is not installed.
    #[must_use]
    pub fn is_undefined(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// The API server's answer, where it gave one that is not sorted further.
    pub(super) fn status(&self) -> Option<&Status> {
        match self.own() {
            Self::Other { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The error behind [`ApiError::Shared`], or this one.
    fn own(&self) -> &Self {
        match self {
            Self::Shared(own) => own.own(),
            own => own,
        }
    }
}

/// The API server's words for content that it does not accept. Of a field it repeats the value, which may be a mount
/// flag, so fields are only named; a policy and a webhook speak in words of their own.
fn without_values(status: &Status) -> String {
    let causes = status.details.as_ref().map_or(&[][..], |details| details.causes.as_slice());
    // Beside the field there is a cause for the object as a whole, whose field is a Go nil.
    let names_a_field = |field: &str| !field.is_empty() && field != "<nil>";
    let fields: Vec<_> = causes.iter().filter(|cause| names_a_field(&cause.field)).collect();
    if fields.is_empty() {
        return status.message.clone();
    }
    fields.iter().map(|cause| format!("{}: {}", cause.field, cause.reason)).collect::<Vec<_>>().join(", ")
}

/// Whether a 404 speaks of the object. A missing CRD answers 404 without naming an object, and a proxy
/// answers 404 without a reason; neither says that the object is gone.
fn is_missing(status: &Status) -> bool {
    status.reason == "NotFound" && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Whether what was to be written is larger than the API server takes (413), or than its etcd does. The latter it does not
/// sort: it hands the words on, etcd's own or those of its client for more than that sends, as 500 (kubernetes/kubernetes
/// issue 112152). Should they change, the error is one of those after which the request is repeated.
fn is_too_large(status: &Status) -> bool {
    const WORDS: [&str; 2] = ["etcdserver: request is too large", "trying to send message larger than max"];
    status.code == 413 || (status.code == 500 && WORDS.iter().any(|words| status.message.contains(words)))
}

/// The words of the API server for a UID that does not match, on PUT and on DELETE (1.34). There is no
/// code for it; should they change, the error is a conflict, which is as safe and only takes a read more.
/// A patch says only that the version does not match.
fn is_other_uid(status: &Status) -> bool {
    status.message.contains("UID in precondition") || status.message.contains("UID in the precondition")
}

#[cfg(test)]
mod tests {
    use kube::core::response::{Status, StatusDetails};

    use super::*;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn sorted(code: u16, reason: &str, message: &str, name: Option<&str>) -> ApiError {
        let details = name.map(|name| StatusDetails {
            name: name.into(),
            group: String::new(),
            kind: "volumeclaims".into(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        let status =
            Status { code, reason: reason.into(), message: message.into(), details, ..Status::default() };
        let request =
            Request { verb: "get", kind: "VolumeClaim".into(), subresource: "", object: "ns/c".into() };
        ApiError::sort(request, kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn only_a_404_that_names_the_object_means_that_it_is_gone() {
        assert!(matches!(
            sorted(404, "NotFound", "volumeclaims \"c\" not found", Some("c")),
            ApiError::Gone(_)
        ));
        // A missing CRD, in both of the API server's forms, and a proxy without an upstream.
        let missing = "the server could not find the requested resource";
        assert!(matches!(sorted(404, "NotFound", missing, None), ApiError::Other { .. }));
        assert!(matches!(
            sorted(404, "Failed to parse error data", "404 page not found", None),
            ApiError::Other { .. }
        ));
    }

    #[test]
    fn a_conflict_about_the_uid_means_that_the_object_is_gone() {
        for message in [
            "Precondition failed: UID in precondition: a, UID in object meta: b",
            "Operation cannot be fulfilled on volumeclaims \"c\": the UID in the precondition (a) does not match \
             the UID in record (b). The object might have been deleted and then recreated",
        ] {
            assert!(matches!(sorted(409, "Conflict", message, Some("c")), ApiError::Gone(_)));
        }
        let message = "the object has been modified; please apply your changes to the latest version";
        assert!(matches!(sorted(409, "Conflict", message, Some("c")), ApiError::Conflict(_)));
    }

    #[test]
    fn that_somebody_else_has_written_is_no_warning() {
        let told = |error: &ApiError| {
            let log = Log::default();
            let (lines, to) = (tracing_subscriber::fmt().with_max_level(tracing::Level::WARN), log.clone());
            let lines = lines.with_writer(move || to.clone()).finish();
            tracing::subscriber::with_default(lines, || error.log("ns/c", "it was not said"));
            String::from_utf8(log.0.lock().clone()).unwrap()
        };
        let conflict = sorted(409, "Conflict", "the object has been modified", Some("c"));
        assert_eq!(told(&conflict), "");
        assert_eq!(told(&ApiError::Shared(Arc::new(conflict))), "");
        let refused = told(&sorted(403, "Forbidden", "no", None));
        assert!(refused.contains("ns/c") && refused.contains("it was not said"), "{refused}");
    }

    #[test]
    fn a_refused_value_is_not_repeated() {
        let said = |field: &str| {
            let mut status = Status { code: 422, reason: "Invalid".into(), ..Status::default() };
            status.message = "spec.mountOptions.mountFlags[0]: Invalid value: \"covert\": too long".into();
            let causes = vec![kube::core::response::StatusCause {
                reason: "FieldValueTooLong".into(),
                message: "Invalid value: \"covert\"".into(),
                field: field.into(),
            }];
            status.details = Some(StatusDetails {
                causes,
                name: "a".into(),
                group: String::new(),
                kind: "attachments".into(),
                uid: String::new(),
                retry_after_seconds: 0,
            });
            let request =
                Request { verb: "create", kind: "Attachment".into(), subresource: "", object: "a".into() };
            ApiError::sort(request, kube::Error::Api(Box::new(status))).refusal().unwrap()
        };
        let field = "spec.fixed.mountOptions.mountFlags[0]";
        assert_eq!(said(field), format!("create Attachment a: invalid: {field}: FieldValueTooLong"));
        assert!(said("").contains("covert"), "a policy's own words stay");
        let conflict = sorted(409, "Conflict", "the object has been modified", Some("c"));
        assert_eq!(conflict.refusal(), None);
        let refused = sorted(403, "Forbidden", "no", None);
        assert!(refused.refusal().unwrap().ends_with("forbidden: no"));
        let shared = ApiError::Shared(Arc::new(refused));
        assert!(
            shared.refusal().is_some_and(|refusal| refusal.ends_with("forbidden: no")),
            "to all who asked"
        );
    }

    #[test]
    fn what_is_too_large_is_not_repeated() {
        let of_client = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2500000 vs. 2097152)";
        for (code, reason, message) in [
            (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
            (413, "Failed to parse error data", "<html>"),
            (500, "", "etcdserver: request is too large"),
            (500, "", of_client),
        ] {
            let error = sorted(code, reason, message, None);
            assert!(matches!(error, ApiError::Invalid { .. }), "{error:?}");
            assert!(error.refusal().is_some_and(|refusal| refusal.ends_with(message)), "{error}");
        }
        for message in ["etcdserver: too many requests", "etcdserver: request timed out"] {
            assert!(matches!(sorted(500, "", message, None), ApiError::Other { .. }), "{message}");
        }
    }

    #[test]
    fn what_the_api_server_did_not_answer_is_asked_again_soon() {
        let next = |code, reason, name| sorted(code, reason, "", name).next();
        for (code, reason) in [(429, "TooManyRequests"), (500, "InternalError"), (503, ""), (504, "Timeout")]
        {
            assert_eq!(next(code, reason, None), Next::Unanswered, "{code}");
        }
        assert_eq!(next(409, "Conflict", Some("c")), Next::Again);
        for (code, reason) in [(403, "Forbidden"), (422, "Invalid"), (401, "Unauthorized"), (404, "NotFound")]
        {
            assert_eq!(next(code, reason, None), Next::Retry, "{code}");
        }
    }

    #[test]
    fn overload_is_not_taken_for_an_answer() {
        assert!(matches!(sorted(429, "TooManyRequests", "later", None), ApiError::Other { .. }));
        assert!(matches!(sorted(504, "Timeout", "later", None), ApiError::Other { .. }));
        assert!(matches!(sorted(401, "Unauthorized", "", None), ApiError::Unauthorized(_)));
        assert!(matches!(sorted(403, "Forbidden", "no", None), ApiError::Forbidden { .. }));
        assert!(matches!(sorted(422, "Invalid", "no", Some("c")), ApiError::Invalid { .. }));
    }
}
