//! Configs and manifests in the docs and in `deploy/`: every config passes `orfa check`, and every manifest
//! is valid YAML.

use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, Yaml};
use tokio::process::Command;

use crate::support::orfa_binary;

fn read_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the code blocks of a page in this language.
fn code_blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let parts = page.split(&begin).skip(1);
    parts.filter_map(|part| Some(part.split_once("```")?.0.to_owned())).collect()
}

/// Asserts that `orfa check` accepts the config. Its secrets are replaced by files.
async fn assert_valid_config(place: &str, text: &str) {
    is_a_config_beside(place, text, &[]).await;
}

/// Like `assert_valid_config`, with other files beside the config.
async fn is_a_config_beside(place: &str, text: &str, files: &[(&str, &str)]) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let has_routes = text.lines().any(|line| line.starts_with("routes:"));
    let text = if has_routes { text.to_owned() } else { format!("{text}\nroutes: []\n") };
    let config = replace_secrets(&text, folder.path());
    write_referenced_files(&text, folder.path());
    let file = folder.path().join("orfa.yaml");
    std::fs::write(&file, &config).expect("written");
    let checked = Command::new(orfa_binary()).arg("check").arg(&file).output().await.expect("orfa runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{place}:\n{text}\n{said}");
}

/// Writes the certificates, keys and scripts of a config under the names used in it, such as
/// `tls/gateway.crt`.
fn write_referenced_files(config: &str, folder: &Path) {
    let made = rcgen::generate_simple_self_signed(["gateway".to_owned()]).expect("a certificate");
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let is_of_a_path = |letter: char| letter.is_ascii_alphanumeric() || "./-_".contains(letter);
    for name in config.split(|letter| !is_of_a_path(letter)) {
        let text = match Path::new(name).extension().and_then(|ending| ending.to_str()) {
            Some("crt") => &cert,
            Some("key") => &key,
            Some("sjs") => &example_script(name),
            _ => continue,
        };
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }
}

/// Returns a script with a service named like its file.
fn example_script(file: &str) -> String {
    let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    format!("service {name} {{ res '/' on GET {{ respond 'here' }} }}\n")
}

/// Returns the config with every `${file:...}` and `${env:...}` replaced by a file in this folder.
fn replace_secrets(text: &str, folder: &Path) -> String {
    let mut parts = text.split("${");
    let mut config = parts.next().unwrap_or_default().to_owned();
    for (number, part) in parts.enumerate() {
        let (_, rest) = part.split_once('}').expect("a `}` after `${`");
        let name = format!("secret-{number}");
        std::fs::write(folder.join(&name), "a-secret-that-is-as-long-as-a-key-has-to-be").expect("written");
        config.push_str(&format!("${{file:{name}}}{rest}"));
    }
    config
}

/// Returns the file name in a block's first line, unless it is a config: `# buyers.yaml: GET /buyers`.
fn declaration_file(block: &str) -> Option<&str> {
    let (file, _) = block.strip_prefix("# ")?.split_once(": ")?;
    (file.ends_with(".yaml") && file != "orfa.yaml").then_some(file)
}

#[tokio::test]
async fn every_config_in_the_docs_is_valid() {
    for page in ["README.md", "docs/operating.md", "docs/s.md"] {
        let shown = code_blocks(&read_file(page), "yaml");
        let (declarations, configs): (Vec<_>, Vec<_>) = shown
            .iter()
            .map(|text| (declaration_file(text), text.as_str()))
            .partition(|(file, _)| file.is_some());
        let declarations: Vec<_> =
            declarations.into_iter().filter_map(|(file, text)| Some((file?, text))).collect();
        assert!(!configs.is_empty(), "{page} shows no config");
        for (number, (_, config)) in configs.iter().enumerate() {
            is_a_config_beside(&format!("config {number} of {page}"), config, &declarations).await;
        }
    }
}

#[test]
fn the_default_image_is_plain_and_a_target_adds_an_engine() {
    let text = read_file("deploy/Dockerfile");
    let lines = || text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let stages: Vec<&str> = lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(stages[1..], ["debian:bookworm-slim AS plain", "plain AS scripts", "plain"]);
    let variant: Vec<&str> = lines().skip_while(|line| *line != "FROM plain AS scripts").collect();
    assert!(variant[1].starts_with("COPY --from=node:") && variant[1].ends_with("/bin/node"), "{variant:?}");
    let shown = text.lines().find(|line| line.contains("docker build") && line.contains("--target"));
    assert!(shown.is_some_and(|line| line.contains("--target scripts")), "{shown:?}");
    assert!(read_file("docs/operating.md").contains("--target scripts"));
}

/// The path of the secret shared by the replicas in Kubernetes.
const SECRET: &str = "/run/secrets/orfa/runtime";

#[tokio::test]
async fn manifests_and_their_config_are_valid_and_replicas_share_a_secret() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
    let manifests: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    let mut kinds = Vec::new();
    for path in &manifests {
        let text = std::fs::read_to_string(path).expect("a manifest");
        let documents =
            Yaml::load_from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for document in &documents {
            kinds.push(document["kind"].as_str().expect("a kind").to_owned());
            let config = document.as_mapping_get("data").and_then(|data| data.as_mapping_get("orfa.yaml"));
            if let Some(config) = config.map(|config| config.as_str().expect("a text")) {
                assert_valid_config("the ConfigMap", config).await;
                assert!(
                    config.contains(&format!("runtime: {{ secret: \"${{file:{SECRET}}}\" }}")),
                    "replicas must share a secret"
                );
            }
        }
        if text.contains("replicas:") {
            let folder = Path::new(SECRET).parent().expect("a folder");
            assert!(text.contains(&format!("mountPath: {}, readOnly: true", folder.display())));
            assert!(text.contains("secretName: orfa") && text.contains("create secret generic orfa "));
        }
    }
    kinds.sort();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"]);
}
