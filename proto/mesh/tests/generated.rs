//! What is checked in of generated code is what its sources generate.

use std::{fs, path::Path};

use tonic_prost_build::Config;

/// A file that differs is written anew: look at the change, and commit it.
#[test]
fn generated_code_is_that_of_its_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mesh-proto");
    fs::create_dir_all(&fresh).expect("a folder");
    let files = protox::compile(["dubbo/mesh/v1/policy.proto"], [root.join("proto")])
        .expect("sources that compile");
    let mut config = Config::new();
    config
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com");
    tonic_prost_build::configure()
        .out_dir(&fresh)
        // Not prost's own types of Google's messages, but those that Envoy's messages hold too.
        .compile_well_known_types(true)
        .extern_path(".google.protobuf", "::envoy_types::pb::google::protobuf")
        .compile_fds_with_config(files, config)
        .expect("code");
    let file = "dubbo.mesh.v1.rs";
    let generated = fs::read_to_string(fresh.join(file)).expect("generated code");
    let checked_in = root.join("src/generated").join(file);
    if fs::read_to_string(&checked_in).ok().as_ref() != Some(&generated) {
        fs::write(&checked_in, generated).expect("a file of the crate");
        panic!("src/generated/{file} was out of date, and is written anew");
    }
}
