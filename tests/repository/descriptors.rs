//! The protocols in `proto/` say the same as the public Go packages: same names, numbers, types and options.
//!
//! Runs `e2e/parts/cmd/descriptors` with Go. Without Go it fails, because then nothing vouches for the protocols.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use prost::Message;

/// Just so much of google/protobuf/descriptor.proto as is compared. The protocol's own options are extensions of it,
/// and so ordinary fields of the encoded options: 1059 is `csi_secret`, 1060 `alpha_*`.
mod descriptor {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Set {
        #[prost(message, repeated, tag = "1")]
        pub files: Vec<File>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct File {
        #[prost(string, tag = "2")]
        pub package: String,
        #[prost(message, repeated, tag = "4")]
        pub messages: Vec<Type>,
        #[prost(message, repeated, tag = "5")]
        pub enums: Vec<Enum>,
        #[prost(message, repeated, tag = "6")]
        pub services: Vec<Service>,
        #[prost(message, repeated, tag = "7")]
        pub extensions: Vec<Field>,
        #[prost(string, tag = "12")]
        pub syntax: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Type {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, repeated, tag = "2")]
        pub fields: Vec<Field>,
        #[prost(message, repeated, tag = "3")]
        pub nested: Vec<Type>,
        #[prost(message, repeated, tag = "4")]
        pub enums: Vec<Enum>,
        #[prost(message, optional, tag = "7")]
        pub options: Option<MessageOptions>,
        #[prost(message, repeated, tag = "8")]
        pub oneofs: Vec<Oneof>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Field {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub extendee: String,
        #[prost(int32, tag = "3")]
        pub number: i32,
        #[prost(int32, tag = "4")]
        pub label: i32,
        #[prost(int32, tag = "5")]
        pub kind: i32,
        #[prost(string, tag = "6")]
        pub type_name: String,
        #[prost(message, optional, tag = "8")]
        pub options: Option<Options>,
        #[prost(int32, optional, tag = "9")]
        pub oneof: Option<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Oneof {
        #[prost(string, tag = "1")]
        pub name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Enum {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, repeated, tag = "2")]
        pub values: Vec<Value>,
        #[prost(message, optional, tag = "3")]
        pub options: Option<Options>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Value {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(int32, tag = "2")]
        pub number: i32,
        #[prost(message, optional, tag = "3")]
        pub options: Option<ValueOptions>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Service {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, repeated, tag = "2")]
        pub methods: Vec<Method>,
        #[prost(message, optional, tag = "3")]
        pub options: Option<ServiceOptions>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Method {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub input: String,
        #[prost(string, tag = "3")]
        pub output: String,
        #[prost(message, optional, tag = "4")]
        pub options: Option<ServiceOptions>,
        #[prost(bool, tag = "5")]
        pub client_streams: bool,
        #[prost(bool, tag = "6")]
        pub server_streams: bool,
    }

    /// Of a field or an enum, whose `deprecated` both have number 3.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Options {
        #[prost(bool, tag = "3")]
        pub deprecated: bool,
        #[prost(bool, tag = "1059")]
        pub secret: bool,
        #[prost(bool, tag = "1060")]
        pub alpha: bool,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct MessageOptions {
        #[prost(bool, tag = "3")]
        pub deprecated: bool,
        #[prost(bool, tag = "7")]
        pub map_entry: bool,
        #[prost(bool, tag = "1060")]
        pub alpha: bool,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ValueOptions {
        #[prost(bool, tag = "1")]
        pub deprecated: bool,
        #[prost(bool, tag = "1060")]
        pub alpha: bool,
    }

    /// Of a service or a method, whose `deprecated` both have number 33.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ServiceOptions {
        #[prost(bool, tag = "33")]
        pub deprecated: bool,
        #[prost(bool, tag = "1060")]
        pub alpha: bool,
    }
}

use descriptor::{Enum, Field, File, Service, Type};

/// Sorted by the names of the options, as the Go program does.
fn marks(alpha: (&str, bool), secret: bool, deprecated: bool) -> String {
    let all = [(alpha.0, alpha.1), ("csi.v1.csi_secret", secret), ("deprecated", deprecated)];
    let set: Vec<_> = all.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect();
    if set.is_empty() { String::new() } else { format!(" [{}]", set.join(" ")) }
}

fn kind(field: &Field) -> &str {
    match field.kind {
        3 => "int64",
        5 => "int32",
        8 => "bool",
        9 => "string",
        11 | 14 => field.type_name.trim_start_matches('.'),
        other => panic!("{}: type {other} occurs in no protocol of ours", field.name),
    }
}

fn field_line(scope: &str, message: &Type, field: &Field) -> String {
    let entry_name = field.type_name.rsplit('.').next();
    let is_entry = |nested: &&Type| {
        Some(nested.name.as_str()) == entry_name
            && nested.options.as_ref().is_some_and(|options| options.map_entry)
    };
    let (kind, label) = match (message.nested.iter().find(is_entry), field.oneof, field.label) {
        (Some(entry), ..) => {
            (format!("map<{},{}>", kind(&entry.fields[0]), kind(&entry.fields[1])), "map".to_owned())
        }
        (None, Some(at), _) => {
            (kind(field).to_owned(), format!("oneof:{}", message.oneofs[usize::try_from(at).unwrap()].name))
        }
        (None, None, 3) => (kind(field).to_owned(), "repeated".to_owned()),
        (None, None, 1) => (kind(field).to_owned(), "optional".to_owned()),
        (None, None, other) => panic!("{}: label {other} is not in proto3", field.name),
    };
    let options = field.options.unwrap_or_default();
    let marks = marks(("csi.v1.alpha_field", options.alpha), options.secret, options.deprecated);
    format!("field {scope}.{} {} {kind} {label}{marks}", field.name, field.number)
}

fn message_lines(scope: &str, message: &Type, lines: &mut BTreeSet<String>) {
    let options = message.options.unwrap_or_default();
    if options.map_entry {
        return;
    }
    let name = format!("{scope}.{}", message.name);
    let marks = marks(("csi.v1.alpha_message", options.alpha), false, options.deprecated);
    lines.insert(format!("message {name}{marks}"));
    lines.extend(message.fields.iter().map(|field| field_line(&name, message, field)));
    message.nested.iter().for_each(|nested| message_lines(&name, nested, lines));
    message.enums.iter().for_each(|inner| enum_lines(&name, inner, lines));
}

fn enum_lines(scope: &str, of: &Enum, lines: &mut BTreeSet<String>) {
    let name = format!("{scope}.{}", of.name);
    let options = of.options.unwrap_or_default();
    let enum_marks = marks(("csi.v1.alpha_enum", options.alpha), false, options.deprecated);
    lines.insert(format!("enum {name}{enum_marks}"));
    for value in &of.values {
        let options = value.options.unwrap_or_default();
        let marks = marks(("csi.v1.alpha_enum_value", options.alpha), false, options.deprecated);
        lines.insert(format!("value {name}.{} {}{marks}", value.name, value.number));
    }
}

fn service_lines(scope: &str, service: &Service, lines: &mut BTreeSet<String>) {
    let name = format!("{scope}.{}", service.name);
    let options = service.options.unwrap_or_default();
    let service_marks = marks(("csi.v1.alpha_service", options.alpha), false, options.deprecated);
    lines.insert(format!("service {name}{service_marks}"));
    for method in &service.methods {
        let options = method.options.unwrap_or_default();
        let marks = marks(("csi.v1.alpha_method", options.alpha), false, options.deprecated);
        let stream = |streams: bool| if streams { "stream " } else { "" };
        lines.insert(format!(
            "method {name}.{} {}{} -> {}{}{marks}",
            method.name,
            stream(method.client_streams),
            method.input.trim_start_matches('.'),
            stream(method.server_streams),
            method.output.trim_start_matches('.'),
        ));
    }
}

fn file_lines(file: &File, lines: &mut BTreeSet<String>) {
    lines.insert(format!("package {} {}", file.package, file.syntax));
    for extension in &file.extensions {
        let extendee = extension.extendee.trim_start_matches('.');
        let (name, number) = (&extension.name, extension.number);
        lines.insert(format!("extension {}.{name} {extendee} {number} {}", file.package, kind(extension)));
    }
    file.messages.iter().for_each(|message| message_lines(&file.package, message, lines));
    file.enums.iter().for_each(|of| enum_lines(&file.package, of, lines));
    file.services.iter().for_each(|service| service_lines(&file.package, service, lines));
}

fn ours() -> BTreeSet<String> {
    let set = descriptor::Set::decode(moor::csi::proto::DESCRIPTORS).unwrap();
    let mut lines = BTreeSet::new();
    for file in set.files.iter().filter(|file| file.package != "google.protobuf") {
        file_lines(file, &mut lines);
    }
    lines
}

fn theirs() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/parts/cmd/descriptors");
    let run = Command::new("go").args(["run", "."]).env("GOWORK", "off").current_dir(&folder).output();
    let output = run.unwrap_or_else(|error| panic!("go run in {}: {error}", folder.display()));
    assert!(output.status.success(), "go run: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn our_protocols_are_those_of_the_public_packages() {
    let (ours, theirs) = (ours(), theirs());
    // A comparison of two empty sets would be no comparison.
    assert!(theirs.len() > 400, "the Go program printed {} lines", theirs.len());
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let foreign: Vec<_> = ours.difference(&theirs).collect();
    assert!(
        missing.is_empty() && foreign.is_empty(),
        "missing in proto/: {missing:#?}\nonly in proto/: {foreign:#?}"
    );
}
