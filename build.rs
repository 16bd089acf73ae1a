//! Compiles the protocols of `proto/` without protoc, writes the `Debug` of every message that carries something
//! secret, and gives the secrets a type that is overwritten when it is dropped. Which fields these are comes from the
//! descriptors and not from a list, so that a field added later is covered too.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use prost_types::FileDescriptorSet;
use protox::prost_reflect::prost::Message as _;
use protox::prost_reflect::{
    DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value,
};

const PROTOS: [&str; 2] = ["csi.proto", "pluginregistration.proto"];

/// String maps that say nothing secret: a driver's build facts and where a volume can be reached. All other maps are
/// opaque to us and known to carry credentials in some drivers.
const PLAIN_MAPS: [&str; 2] = ["csi.v1.GetPluginInfoResponse.manifest", "csi.v1.Topology.segments"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    for proto in PROTOS {
        println!("cargo::rerun-if-changed=proto/{proto}");
    }
    link_small();
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(PROTOS)?;
    let pool = compiler.descriptor_pool();
    // Not `file_descriptor_set()`: those types know no extensions and would drop `csi_secret`.
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    let secret = pool.get_extension_by_name("csi.v1.csi_secret").ok_or("csi_secret is not declared")?;
    let closed = closed_messages(&pool, &secret);
    fs::write(out.join("redacted.rs"), debug_impls(&closed)?)?;

    let set = FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    tonic_prost_build::configure()
        // Maps keep an order, so that a repeated call is the same bytes.
        .btree_map(".")
        // A plugin answers UNIMPLEMENTED to what it does not serve (CSI, error scheme).
        .generate_default_stubs(true)
        // The loop driver keeps it in its files.
        .enum_attribute(
            "csi.v1.VolumeCapability.AccessMode.Mode",
            "#[derive(serde::Serialize, serde::Deserialize)] #[serde(rename_all = \"SCREAMING_SNAKE_CASE\")]",
        )
        .extern_path(".google.protobuf.Timestamp", "super::super::Timestamp")
        .skip_debug(closed.iter().map(|(message, _)| message.full_name().to_owned()))
        .compile_fds(set)?;
    let generated = out.join("csi.v1.rs");
    let code = with_secrets(&fs::read_to_string(&generated)?, &closed, &secret)?;
    fs::write(generated, code)?;
    Ok(())
}

/// A release is linked small (docs/adr/0060): what the loader has to adjust is listed in a hundredth of the room, which needs
/// glibc 2.36, and functions of the same code are one. Of the linkers that rustc chooses only that of this target can do the latter.
fn link_small() {
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|is| is == value);
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs,--icf=all");
    }
}

/// The generated messages with another type for their secrets. prost has none but `BTreeMap` to choose for a map.
fn with_secrets(code: &str, closed: &Closed, secret: &ExtensionDescriptor) -> Result<String, Box<dyn Error>> {
    const MAP: &str = "pub secrets: ::prost::alloc::collections::BTreeMap<\n        ::prost::alloc::string::String,\n        \
                       ::prost::alloc::string::String,\n    >,";
    let marked = closed.iter().flat_map(|(_, fields)| fields).filter(|(field, _)| is_marked(field, secret));
    let (all, found) = (marked.count(), code.matches(MAP).count());
    if all != found {
        return Err(
            format!("{all} fields are marked csi_secret, and {found} of them are generated as maps").into()
        );
    }
    Ok(code.replace(MAP, "pub secrets: crate::csi::Secrets,"))
}

/// The messages that derive no `Debug`, each with its fields and whether the field's content stays hidden.
type Closed = Vec<(MessageDescriptor, Vec<(FieldDescriptor, bool)>)>;

fn closed_messages(pool: &DescriptorPool, secret: &ExtensionDescriptor) -> Closed {
    let ours =
        pool.all_messages().filter(|message| !message.is_map_entry() && message.package_name() == "csi.v1");
    let with_fields = ours.map(|message| {
        let fields =
            message.fields().map(|field| (field.clone(), is_hidden(&field, secret))).collect::<Vec<_>>();
        (message, fields)
    });
    with_fields.filter(|(_, fields)| fields.iter().any(|(_, hidden)| *hidden)).collect()
}

fn is_marked(field: &FieldDescriptor, secret: &ExtensionDescriptor) -> bool {
    matches!(field.options().get_extension(secret).as_ref(), Value::Bool(true))
}

fn is_hidden(field: &FieldDescriptor, secret: &ExtensionDescriptor) -> bool {
    let opaque_map = field.is_map() && !PLAIN_MAPS.contains(&field.full_name());
    // Drivers of network file systems take user names and passwords as mount options.
    is_marked(field, secret) || opaque_map || field.name() == "mount_flags"
}

fn debug_impls(closed: &Closed) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    for (message, fields) in closed {
        let path = rust_path(message);
        writeln!(code, "impl ::core::fmt::Debug for {path} {{")?;
        writeln!(code, "    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{")?;
        writeln!(code, "        f.debug_struct({:?})", message.name())?;
        for (field, hidden) in fields {
            let name = field.name();
            if field.containing_oneof().is_some() {
                // Would need the oneof's own name here; no message that carries secrets has one.
                return Err(format!("{}: a oneof beside secrets is not handled", message.full_name()).into());
            }
            let value = match (hidden, field.kind()) {
                (true, Kind::String | Kind::Message(_)) if field.is_list() || field.is_map() => {
                    format!("&crate::csi::redact::Hidden(self.{name}.len())")
                }
                (true, _) => {
                    return Err(format!("{}: only lists and maps can be hidden", field.full_name()).into());
                }
                (false, _) => format!("&self.{name}"),
            };
            writeln!(code, "            .field({name:?}, {value})")?;
        }
        writeln!(code, "            .finish()\n    }}\n}}")?;
    }
    Ok(code)
}

/// Where prost puts a message: a nested one in a module named after its parent.
fn rust_path(message: &MessageDescriptor) -> String {
    let mut path = message.name().to_owned();
    let mut parent = message.parent_message();
    while let Some(outer) = parent {
        path = format!("{}::{path}", snake_case(outer.name()));
        parent = outer.parent_message();
    }
    path
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
