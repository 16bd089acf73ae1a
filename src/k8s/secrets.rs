//! Secrets for CSI calls: fetched for the call, never cached, never logged.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, core::Request as Path};
use serde::Deserialize;
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

use super::{
    error::ApiError,
    read::{request, within},
    store::Named,
};

/// The data of one Secret. Debug shows the keys only. The values are overwritten when they are dropped.
#[derive(Default, PartialEq, Eq)]
pub struct SecretData(BTreeMap<String, Zeroizing<String>>);

impl SecretData {
    /// The values, for the call that needs them: whoever takes them overwrites them.
    #[must_use]
    pub fn reveal(self) -> BTreeMap<String, String> {
        self.0.into_iter().map(|(key, mut value)| (key, std::mem::take(&mut *value))).collect()
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Why a Secret cannot be had. No variant carries content.
#[derive(Debug, Error)]
pub enum SecretError {
    /// There is no such Secret. An undo call is made without it (rule R12).
    #[error("Secret {0} does not exist")]
    NotFound(String),
    /// The Secret could not be read.
    #[error(transparent)]
    Unreadable(ApiError),
    /// The Secret cannot be what a call needs: none has this name, or the answer is no Secret, or holds more than strings.
    #[error("{0}")]
    Unusable(String),
}

/// What is read of a Secret.
#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    data: Option<BTreeMap<String, k8s_openapi::ByteString>>,
}

/// Reads a Secret live.
pub async fn fetch(client: &Client, secret: Named<'_>) -> Result<SecretData, SecretError> {
    let Named { namespace, name } = secret;
    if !is_name(name) {
        // It is not put into the path of a request, where it could mean another object.
        return Err(SecretError::Unusable(format!("\"{secret}\" is no name of a Secret")));
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let asked = request(&api, "get", name);
    let get = async {
        // Not Api::get: the client logs an answer that it cannot read, with all that is in it.
        let path = Path::new(api.resource_url());
        client
            .request_text(
                path.get(name, &kube::api::GetParams::default()).map_err(kube::Error::BuildRequest)?,
            )
            .await
    };
    let text = match within(&asked, get).await {
        Ok(text) => Zeroizing::new(text),
        Err(ApiError::Gone(_)) => return Err(SecretError::NotFound(secret.to_string())),
        Err(other) => return Err(SecretError::Unreadable(other)),
    };
    parse(&text).map_err(|why| SecretError::Unusable(format!("Secret {secret}: {why}")))
}

/// Whether a Secret may have this name. What the API server would refuse by itself is not checked.
fn is_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(known)
}

/// The content of a Secret as the API server sends it, or why it cannot be used.
fn parse(text: &str) -> Result<SecretData, String> {
    let Ok(body) = serde_json::from_str::<Body>(text) else {
        return Err("the answer is not a Secret".into());
    };
    let entries =
        body.data.unwrap_or_default().into_iter().map(|(key, value)| match String::from_utf8(value.0) {
            Ok(value) => Ok((key, Zeroizing::new(value))),
            Err(error) => {
                error.into_bytes().zeroize();
                Err(format!("the value of key {key} is not UTF-8, and CSI has only strings"))
            }
        });
    entries.collect::<Result<_, _>>().map(SecretData)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::scripted_tests::{Answer, Scripted};
    use super::*;

    #[test]
    fn values_are_decoded_and_never_printed() {
        let data = parse(r#"{"data":{"user":"YWRtaW4=","key":"aHVudGVyMg=="}}"#).unwrap();
        assert_eq!(format!("{data:?}"), r#"{"key", "user"}"#);
        assert_eq!(data.reveal()["key"], "hunter2");
    }

    #[tokio::test]
    async fn a_name_is_never_more_than_a_name() {
        let (server, client) =
            Scripted::start(vec![Answer::Json(json!({"data": {"user": "YWRtaW4="}}))]).await;
        for name in ["s?a=b", "../../other/secrets/s", "..", "s/t", "s#", "s%2f", "S", ""] {
            let error = fetch(&client, Named { namespace: "ns", name }).await.unwrap_err();
            assert!(error.to_string().ends_with("\" is no name of a Secret"), "{name}: {error}");
        }
        assert_eq!(
            fetch(&client, Named { namespace: "ns", name: "s-1.a" }).await.unwrap().reveal()["user"],
            "admin"
        );
        let asked: Vec<_> = server.asked().into_iter().map(|asked| asked.uri).collect();
        assert_eq!(asked, ["/api/v1/namespaces/ns/secrets/s-1.a"]);
    }

    #[test]
    fn errors_name_the_key_and_not_the_value() {
        let error = parse(r#"{"data":{"cert":"/w=="}}"#).unwrap_err();
        assert_eq!(error, "the value of key cert is not UTF-8, and CSI has only strings");
        let error = parse("hunter2").unwrap_err();
        assert_eq!(error, "the answer is not a Secret");
        assert_eq!(parse("{}").unwrap(), SecretData::default());
    }
}
