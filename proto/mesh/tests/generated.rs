//! What is checked in of generated code is what its sources generate.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use prost::Message;
use tonic_prost_build::Config;

/// A file that differs is written anew: look at the change, and commit it.
#[test]
fn generated_code_is_that_of_its_sources() {
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mesh-proto");
    fs::create_dir_all(&fresh).expect("a folder");
    let files = protox::compile([POLICY], [root().join("proto")]).expect("sources that compile");
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
    let generated = fs::read(fresh.join("dubbo.mesh.v1.rs")).expect("generated code");
    check("dubbo.mesh.v1.rs", &generated);
}

/// Descriptors of the services and messages of a stream, which reflection tells tools that ask.
#[test]
fn descriptors_are_those_of_the_sources() {
    let envoy = envoy_protos();
    let folders = [
        "data-plane-api",
        "googleapis",
        "protoc-gen-validate",
        "xds",
        "cel-spec",
    ];
    let includes = folders.map(|folder| envoy.join(folder));
    let mut compiler = protox::Compiler::new([root().join("proto")].iter().chain(&includes))
        .expect("folders of sources");
    let files = compiler
        .include_imports(true)
        .include_source_info(false)
        .open_files([POLICY, "envoy/service/discovery/v3/ads.proto"])
        .expect("sources that compile")
        .file_descriptor_set();
    check("descriptors.bin", &files.encode_to_vec());
}

fn check(file: &str, generated: &[u8]) {
    let checked_in = root().join("src/generated").join(file);
    if fs::read(&checked_in).ok().as_deref() != Some(generated) {
        fs::write(&checked_in, generated).expect("a file of the crate");
        panic!("src/generated/{file} was out of date, and is written anew");
    }
}

/// Where the crate with Envoy's messages keeps the sources of these.
fn envoy_protos() -> PathBuf {
    let output = |command: &mut Command| {
        let output = command.current_dir(root()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        output.stdout
    };
    let compiler = output(Command::new("rustc").arg("-vV"));
    let compiler = String::from_utf8(compiler).expect("text");
    let host = compiler
        .lines()
        .find_map(|line| line.strip_prefix("host: "));
    // Crates for other platforms than this one need not be on the machine.
    let metadata = output(Command::new(env!("CARGO")).args([
        "metadata",
        "--format-version=1",
        "--offline",
        "--filter-platform",
        host.expect("a platform"),
    ]));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).expect("JSON");
    let mut packages = metadata["packages"].as_array().expect("packages").iter();
    let envoy = packages
        .find(|package| package["name"] == "envoy-types")
        .expect("Envoy's messages");
    let manifest = Path::new(envoy["manifest_path"].as_str().expect("a path"));
    manifest.with_file_name("proto")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

const POLICY: &str = "dubbo/mesh/v1/policy.proto";
