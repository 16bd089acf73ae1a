//! Prints the CustomResourceDefinitions.
#![allow(clippy::print_stdout)]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for crd in moor::api::all_crds() {
        println!("---\n{}", serde_saphyr::to_string(&crd)?);
    }
    Ok(())
}
