use kube::api::ListParams;
use kube::core::Request as Url;
use serde_json::{Value, json};

use super::super::scripted_tests::{Answer, Scripted};
use super::*;

const SILENCE: Duration = Duration::from_secs(20);

/// Text that comes byte by byte.
struct Dripping<'a>(&'a [u8]);

impl Read for Dripping<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (Some((first, rest)), Some(to)) = (self.0.split_first(), into.first_mut()) else { return Ok(0) };
        (*to, self.0) = (*first, rest);
        Ok(1)
    }
}

fn read_text(text: &str) -> (Vec<Value>, Result<Option<String>, String>) {
    let mut items = Vec::new();
    let read = read(Dripping(text.as_bytes()), |object| {
        items.push(serde_json::from_str(object.get()).unwrap());
        true
    });
    (items, read.map(|metadata| metadata.resource_version).map_err(|error| error.to_string()))
}

#[test]
fn a_list_is_read_in_whatever_order_its_fields_are() {
    let items =
        [json!({"metadata": {"name": "a]}"}, "items": [{"items": []}]}), json!({"x": "\"}],"}), json!({})];
    let of_items = json!(items).to_string();
    for text in [
        format!(
            r#"{{"kind":"L","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":{of_items}}}"#
        ),
        format!(
            r#" {{ "items" : {of_items} , "metadata" : {{ "resourceVersion" : "7", "more": [] }} , "more": {{}} }} "#
        ),
    ] {
        assert_eq!(read_text(&text), (items.to_vec(), Ok(Some("7".to_owned()))), "{text}");
    }
}

#[test]
fn a_list_without_objects_is_one() {
    for text in [
        r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":null}"#,
    ] {
        assert_eq!(read_text(text), (vec![], Ok(Some("7".to_owned()))), "{text}");
    }
}

/// An answer from which nothing may be concluded, such as one of a proxy, or a part of a list.
#[test]
fn what_is_no_list_or_not_all_of_one_is_an_error() {
    for text in [
        "{}",
        r#"{"metadata":{"resourceVersion":"7"}}"#,
        r#"{"items":[]}"#,
        r#"{"kind":"Status","metadata":{},"status":"Success"}"#,
        r#"{"metadata":{"resourceVersion":"7","continue":"more"},"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":{}}"#,
        "[]",
    ] {
        assert!(read_text(text).1.is_err(), "{text}");
    }
}

/// What was shown until then is no list: nothing may be concluded from what is not in it.
#[test]
fn one_that_ends_too_early_is_an_error() {
    let whole = r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}"#;
    for length in 0..whole.len() {
        assert!(read_text(&whole[..length]).1.is_err(), "{}", &whole[..length]);
    }
    assert!(read_text(&format!("{whole}{whole}")).1.is_err());
}

async fn listed(
    answer: Answer,
    silence: Duration,
    take: impl FnMut(Value) -> ControlFlow<()>,
) -> Result<Option<ListMeta>, ListError> {
    let (_server, client) = Scripted::start(vec![answer]).await;
    let request = Url::new("/api/v1/configmaps").list(&ListParams::default()).unwrap();
    list(&client, request, silence, take).await
}

#[tokio::test]
async fn objects_are_shown_until_nobody_wants_more() {
    let many: Vec<_> = (0..10 * AHEAD).map(|n| json!({"number": n})).collect();
    let answer = || Answer::Json(json!({"metadata": {"resourceVersion": "7"}, "items": many}));
    let mut seen = Vec::new();
    let found = listed(answer(), SILENCE, |object| {
        seen.push(object);
        ControlFlow::Continue(())
    });
    assert_eq!(found.await.unwrap().unwrap().resource_version.as_deref(), Some("7"));
    assert_eq!(seen, many);

    let mut count = 0;
    let found = listed(answer(), SILENCE, |_| {
        count += 1;
        if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(found.await.unwrap().is_none());
    assert_eq!(count, 3);
}

#[tokio::test]
async fn one_that_stops_coming_is_given_up() {
    let half = Answer::Begun(r#"{"metadata":{},"items":[{"#);
    let found = listed(half, Duration::from_millis(200), |_| ControlFlow::Continue(())).await;
    assert!(matches!(found, Err(ListError::TimedOut(_))), "{found:?}");
}

#[tokio::test]
async fn a_refusal_is_the_api_servers_own() {
    let found = listed(Answer::Error(410, "Expired"), SILENCE, |_| ControlFlow::Continue(())).await;
    let Err(ListError::Client(kube::Error::Api(status))) = found else { panic!("{found:?}") };
    assert_eq!(status.code, 410);
}
