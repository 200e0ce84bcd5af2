//! Who may import whom: the crates, and the modules inside the proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Module of the proxy, and the modules it may import besides itself. `app` may import all.
const MODULES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("drain", &[]),
    ("config", &["model"]),
    ("call", &["model"]),
    ("metrics", &["model", "call"]),
    ("access_log", &["model", "call"]),
    ("policy", &["model", "call", "config", "drain"]),
    (
        "upstream",
        &["model", "call", "config", "drain", "metrics", "policy"],
    ),
    (
        "mesh",
        &[
            "model", "call", "config", "drain", "metrics", "policy", "upstream",
        ],
    ),
    (
        "shard",
        &[
            "model",
            "call",
            "config",
            "drain",
            "metrics",
            "access_log",
            "policy",
            "upstream",
            "mesh",
        ],
    ),
    (
        "listener",
        &[
            "model", "call", "config", "drain", "metrics", "mesh", "shard",
        ],
    ),
    ("xds", &["model", "config", "drain", "metrics", "mesh"]),
    (
        "admin",
        &["model", "config", "drain", "policy", "mesh", "metrics"],
    ),
];

/// Crate, and those of our own it may use. Tests may use more: see [`DEV_CRATES`].
const CRATES: &[(&str, &[&str])] = &[
    ("dubbo-proto", &[]),
    ("mesh-rules", &["dubbo-proto"]),
    ("mesh-proto", &["dubbo-proto"]),
    ("dubbo-proxy", &["dubbo-proto", "mesh-proto", "mesh-rules"]),
    (
        "control-plane",
        &["dubbo-proto", "mesh-proto", "mesh-rules"],
    ),
    ("thin-sdk", &["dubbo-proto"]),
    ("thin-sdk-capi", &["thin-sdk"]),
    ("mesh-benches", BELOW_BENCHES),
    ("mesh-tests", BELOW_CLI),
    ("dubbo-mesh", BELOW_CLI),
];

const BELOW_BENCHES: &[&str] = &[
    "dubbo-proto",
    "mesh-rules",
    "mesh-proto",
    "dubbo-proxy",
    "control-plane",
    "thin-sdk",
];

const BELOW_CLI: &[&str] = &[
    "dubbo-proto",
    "mesh-rules",
    "mesh-proto",
    "dubbo-proxy",
    "control-plane",
    "thin-sdk",
    "mesh-benches",
];

/// What the tests of a crate may use beyond its row in [`CRATES`].
const DEV_CRATES: &[(&str, &[&str])] = &[("dubbo-mesh", &["mesh-tests"])];

/// All that `dubbo-proto` may use: it is linked into applications.
const UNDER_PROTO: &[&str] = &["bytes", "slab", "thiserror"];

/// What is never linked into applications, however deep in the graph: gRPC, xDS, metrics.
const NOT_IN_APPLICATIONS: &[&str] = &["mesh-proto", "tonic", "prost", "envoy-types", "prometheus"];

#[test]
fn modules_of_the_proxy_import_only_lower_ones() {
    let src = root().join("proxy/src");
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let inside = file.strip_prefix(&src).expect("a file below src");
        let module = inside.iter().next().expect("a name").to_string_lossy();
        let module = module.trim_end_matches(".rs");
        if matches!(module, "lib" | "app") {
            continue;
        }
        let row = MODULES.iter().find(|(name, _)| *name == module);
        let (_, allowed) = row.unwrap_or_else(|| panic!("{module} has no row in MODULES"));
        for used in imports(&fs::read_to_string(&file).expect("a source")) {
            if used != module && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{}: crate::{used}", inside.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "forbidden imports in proxy/src:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn crates_depend_only_on_lower_ones() {
    let mut wrong = Vec::new();
    for folder in [
        "proto/dubbo",
        "proto/rules",
        "proto/mesh",
        "proxy",
        "control-plane",
        "thin-sdk",
    ]
    .iter()
    .chain(&["thin-sdk/capi", "benches", "cli", "tests"])
    {
        let Ok(manifest) = fs::read_to_string(root().join(folder).join("Cargo.toml")) else {
            continue; // a crate that does not exist yet
        };
        let name = package_name(&manifest);
        let (_, allowed) = CRATES
            .iter()
            .find(|(n, _)| *n == name)
            .expect("a row in CRATES");
        let dev = DEV_CRATES
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(&[][..], |(_, more)| more);
        let ours = |used: &String| CRATES.iter().any(|(n, _)| n == used);
        let normal = dependencies(&manifest, "dependencies");
        let tests = dependencies(&manifest, "dev-dependencies");
        let bad = normal
            .iter()
            .filter(|d| ours(d) && !allowed.contains(&d.as_str()));
        let bad_in_tests = tests
            .iter()
            .filter(|d| ours(d) && !allowed.contains(&d.as_str()) && !dev.contains(&d.as_str()));
        wrong.extend(bad.chain(bad_in_tests).map(|d| format!("{name} -> {d}")));
        if name == "dubbo-proto" {
            let foreign = normal.iter().filter(|d| !UNDER_PROTO.contains(&d.as_str()));
            wrong.extend(foreign.map(|d| format!("{name} -> {d}")));
        }
    }
    assert!(
        wrong.is_empty(),
        "forbidden dependencies:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn an_application_links_no_part_of_a_control_plane() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("a lock file");
    let packages = locked(&lock);
    let mut linked = BTreeSet::from(["thin-sdk".to_owned()]);
    let mut left = vec!["thin-sdk".to_owned()];
    while let Some(package) = left.pop() {
        let used = packages.get(&package).expect("a locked package");
        left.extend(
            used.iter()
                .filter(|name| linked.insert((*name).clone()))
                .cloned(),
        );
    }
    assert!(linked.contains("hyper"), "the graph is read: {linked:?}");
    for package in NOT_IN_APPLICATIONS {
        assert!(packages.contains_key(*package), "{package} is used nowhere");
        assert!(!linked.contains(*package), "thin-sdk links {package}");
    }
}

#[test]
fn imports_are_found_in_every_form() {
    let source = "
        use crate::model::Side; // crate::comment
        /// [`crate::docs`]
        use crate::{call::{Call, Failure}, mesh};
        pub(in crate::config) fn f(x: crate::shard::Core) {}
    ";
    let found: Vec<_> = imports(source).into_iter().collect();
    assert_eq!(found, ["call", "config", "mesh", "model", "shard"]);
}

/// The first name of every path from `crate::` in the code of `source`.
fn imports(source: &str) -> BTreeSet<String> {
    let code: String = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let after = code.split("crate::").skip(1);
    after
        .flat_map(|rest| first_names(rest.trim_start()))
        .collect()
}

/// `a` of `a::b`, or `a` and `c` of `{a::b, c::{d, e}}`.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let mut names = Vec::new();
    let (mut depth, mut start) = (0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            _ if c.is_whitespace() => {}
            _ if start => {
                names.push(word(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

fn package_name(manifest: &str) -> String {
    let name = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = \""));
    name.expect("a package name")
        .trim_end_matches('"')
        .to_owned()
}

/// The names in a table of a manifest, written `name = ..`, `name.workspace = ..` or `[table.name]`.
fn dependencies(manifest: &str, table: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines() {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            inside = header == table;
            found.extend(header.strip_prefix(&format!("{table}.")).map(str::to_owned));
        } else if inside && !line.starts_with('#') && line.contains('=') {
            let name = line.split(['=', '.']).next().unwrap_or_default();
            found.push(name.trim().to_owned());
        }
    }
    found
}

/// The packages of a lock file by name, each with the names of what it uses, in whatever version.
fn locked(lock: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let used = package.lines().filter_map(|line| line.strip_prefix(" \""));
        let used = used.map(word_of_package).collect::<BTreeSet<_>>();
        packages
            .entry(package_name(package))
            .or_default()
            .extend(used);
    }
    packages
}

/// `name` of `name 1.2.3",`, where the lock file tells versions apart, or of `name",`.
fn word_of_package(line: &str) -> String {
    let end = line.find([' ', '"']).unwrap_or(line.len());
    line[..end].to_owned()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| match path.extension() {
            _ if path.is_dir() => rust_files(&path),
            Some(extension) if extension == "rs" => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
