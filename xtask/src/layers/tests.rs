//! Good and bad trees for the layer rules, and the real tree.

use super::*;

/// A tree in words: `folder: dependency dependency; dev dependency`, one crate a line; packages are named like folders.
fn messages(tree: &str) -> Vec<String> {
    let manifests: Vec<Manifest> = tree.lines().filter(|line| !line.trim().is_empty()).map(manifest).collect();
    check(&manifests).into_iter().map(|finding| finding.message).collect()
}

fn manifest(line: &str) -> Manifest {
    let (folder, dependencies) = line.trim().split_once(':').expect("folder: dependencies");
    let (normal, dev) = dependencies.split_once(';').unwrap_or((dependencies, ""));
    let names = |kind, list: &str| list.split_whitespace().map(|name| (kind, name.to_owned())).collect::<Vec<_>>();
    Manifest {
        folder: folder.to_owned(),
        path: format!("crates/{folder}/Cargo.toml"),
        package: folder.to_owned(),
        is_binary: ["macronode", "sim", "bench", "xtask"].contains(&folder),
        dependencies: [names(Kind::Normal, normal), names(Kind::Dev, dev)].concat(),
    }
}

#[test]
fn the_tree_is_in_order() {
    let manifests = read(&tree::root()).expect("the manifests can be read");
    assert!(manifests.len() > 5, "the crates were found");
    let findings: Vec<String> = check(&manifests).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_good_tree_is_quiet() {
    let tree = "
        types: serde
        cells:
        policy: types
        kernel: types cells policy tokio; testkit proptest
        oap: types
        transport: kernel oap
        mailbox: kernel transport
        index: kernel
        admin: kernel axum hyper-util
        macronode: admin mailbox index clap; testkit
        testkit: tokio hyper
        sim: policy clap
        fuzz: oap mailbox; sim
        bench: testkit macronode axum";
    assert_eq!(messages(tree), Vec::<String>::new());
}

#[test]
fn a_new_service_stands_beside_the_others_without_being_listed() {
    assert_eq!(messages("kernel:\n svc-chat: kernel\n macronode: svc-chat"), Vec::<String>::new());
    assert_eq!(messages("mailbox:\n svc-chat: mailbox"), ["svc-chat must not use mailbox: it is not below it"]);
    assert_eq!(messages("chat: "), ["chat has no place in the ladder of xtask/src/layers.rs"]);
}

#[test]
fn each_bad_edge_is_found() {
    for (tree, culprit) in [
        ("types: cells\n cells:", "types must not use cells"),
        ("policy: kernel\n kernel:", "policy must not use kernel"),
        ("policy: ; kernel\n kernel:", "policy must not use kernel"),
        ("mailbox: index\n index:", "mailbox must not use index"),
        ("facets: mailbox\n mailbox:", "facets must not use mailbox"),
        ("oap: transport\n transport:", "oap must not use transport"),
        ("api: admin\n admin:", "api must not use admin"),
        ("kernel: testkit\n testkit:", "testkit is for development"),
        ("macronode: sim\n sim:", "sim is for development"),
        ("oap: fuzz\n fuzz:", "fuzz is for development"),
        ("surprise: serde", "surprise has no place"),
        ("mailbox: axum", "mailbox must not use axum"),
        ("kernel: hyper-util", "kernel must not use hyper-util"),
        ("cells: tokio", "cells must not use tokio"),
        ("policy: tokio-util", "policy must not use tokio-util"),
        ("kernel: clap", "kernel must not use clap"),
    ] {
        let found = messages(tree);
        assert_eq!(found.len(), 1, "{tree}: {found:?}");
        assert!(found[0].starts_with(culprit), "{tree}: {found:?}");
    }
}

#[test]
fn a_manifest_is_read_whole() {
    let text = r#"
        [package]
        name = "ron-oap"
        [dependencies]
        a.workspace = true
        [build-dependencies]
        b = "1"
        [dev-dependencies]
        c = { package = "real-c", version = "1" }
        [target.'cfg(loom)'.dependencies]
        d = "1"
    "#;
    let manifest = parse("crates/oap/Cargo.toml", text, false).expect("it is a manifest");
    assert_eq!((manifest.folder.as_str(), manifest.package.as_str(), manifest.is_binary), ("oap", "ron-oap", false));
    let named = |kind, name: &str| (kind, name.to_owned());
    let expected =
        [named(Kind::Normal, "a"), named(Kind::Normal, "b"), named(Kind::Dev, "real-c"), named(Kind::Normal, "d")];
    assert_eq!(manifest.dependencies, expected);
}
