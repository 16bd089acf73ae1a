//! An API server that gives prepared answers, one per request, and remembers what it was asked.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// One answer.
pub enum Answer {
    /// An object or a list.
    Json(Value),
    /// Events; the stream ends after them.
    Events(Vec<Value>),
    /// Events; the stream stays open after them.
    Open(Vec<Value>),
    /// Any text.
    Text(String),
    /// The beginning of an answer, of which no more comes.
    Begun(&'static str),
    /// An error status.
    Error(u16, &'static str),
    /// An error with the status that it has.
    Status(u16, Value),
}

/// What was asked: method, path with query, body.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub uri: String,
    pub body: Value,
}

#[derive(Clone)]
pub struct Scripted {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    /// Starts the server. After the last answer requests hang.
    pub async fn start(answers: Vec<Answer>) -> (Self, Client) {
        let server = Self { answers: Arc::new(Mutex::new(answers.into())), asked: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let mut config = Config::new(format!("http://{address}").parse().unwrap());
        config.default_retry = false;
        (server, Client::try_from(config).unwrap())
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn answer(State(server): State<Scripted>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    server.asked.lock().unwrap().push(Asked {
        method: parts.method.to_string(),
        uri: parts.uri.to_string(),
        body,
    });
    let next = server.answers.lock().unwrap().pop_front();
    // In the order in which an API server writes it.
    let line = |event: Value| {
        let (type_, object) = (&event["type"], &event["object"]);
        Ok::<_, Infallible>(format!("{{\"type\":{type_},\"object\":{object}}}\n"))
    };
    match next {
        Some(Answer::Json(value)) => axum::http::Response::new(Body::from(value.to_string())),
        Some(Answer::Events(events)) => Body::from_stream(stream::iter(events).map(line)).into_response(),
        Some(Answer::Open(events)) => {
            Body::from_stream(stream::iter(events).map(line).chain(stream::pending())).into_response()
        }
        Some(Answer::Text(text)) => axum::http::Response::new(Body::from(text)),
        Some(Answer::Begun(text)) => {
            let text = stream::iter([Ok::<_, Infallible>(text)]);
            Body::from_stream(text.chain(stream::pending())).into_response()
        }
        Some(Answer::Error(code, reason)) => {
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "m"});
            (StatusCode::from_u16(code).unwrap(), status.to_string()).into_response()
        }
        Some(Answer::Status(code, status)) => {
            (StatusCode::from_u16(code).unwrap(), status.to_string()).into_response()
        }
        None => std::future::pending().await,
    }
}
