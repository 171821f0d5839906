//! `orfa types`: TypeScript's compiler accepts its output and rejects wrong uses of it.

use std::path::{Path, PathBuf};
use std::process::Output;

use testkit::with_timeout;
use tokio::process::Command;

use crate::support::orfa_binary;

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

async fn run_orfa(arguments: &[&str]) -> Output {
    let output = Command::new(orfa_binary()).args(arguments).current_dir(repository_root()).output();
    with_timeout("orfa's end", output).await.expect("orfa runs")
}

/// Type-checks these programs like a user's project, except that missing types are allowed.
async fn run_tsc(folder: &Path, files: &[&str]) {
    let compiler = repository_root().join("sdk/javascript/node_modules/typescript/lib/tsc.js");
    assert!(compiler.is_file(), "TypeScript is missing: run `scripts/setup test` for instructions");
    let options = "--noEmit --strict --noImplicitAny false --target es2022 --lib es2022,dom --module esnext \
                   --moduleResolution bundler";
    let mut node = Command::new("node");
    let output = node.arg(compiler).args(options.split(' ')).args(files).current_dir(folder).output();
    let ended = with_timeout("tsc's end", output).await.expect("node runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

async fn write_types(folder: &Path, from: &[&str]) -> String {
    let out = folder.join("orfa.d.ts");
    let mut arguments = vec!["types"];
    arguments.extend(from);
    arguments.extend(["-o", out.to_str().expect("a path in UTF-8")]);
    let written = run_orfa(&arguments).await;
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    String::from_utf8_lossy(&written.stderr).into_owned()
}

#[tokio::test]
async fn the_marketplaces_types_match_its_documents() {
    let folder = repository_root().join("examples/marketplace/queries");
    let there = std::fs::read_to_string(folder.join("orfa.d.ts")).expect("the types");
    let written = run_orfa(&["types", "examples/marketplace"]).await;
    assert_eq!(String::from_utf8_lossy(&written.stderr), "");
    let hint =
        "`orfa types examples/marketplace -o examples/marketplace/queries/orfa.d.ts` writes them again";
    assert!(String::from_utf8_lossy(&written.stdout) == there, "{hint}");
}

#[tokio::test]
async fn the_marketplaces_programs_match_its_types() {
    let folder = repository_root().join("examples/marketplace/queries");
    let files = std::fs::read_dir(&folder).expect("the folder");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name in ASCII"));
    let programs: Vec<String> = names.filter(|name| name.ends_with(".ts")).collect();
    run_tsc(&folder, &programs.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Each line below an `@ts-expect-error` must be an error; otherwise TypeScript reports the comment.
const WRONG_PROGRAM: &str = r#"
import type { Services, catalog } from "./orfa";
export default async function (_: unknown, { profile, catalog, order }: Services) {
  const postings: catalog.Catalog[] = await catalog.get("/catalogs", { buyer: 7, sort: "-created", ids: [1, 2] });
  const title: string | undefined = postings[0]?.title;
  const one = await catalog.get("/catalogs/{id}", { id: "7" });
  await catalog.put("/catalogs/{id}", { ...one }, { id: one.id });
  await profile.post("/users/{id}/notices", { text: "x" }, { id: 7 });
  const raw: Response = await order.fetch("/anything", { method: "OPTIONS" });
  // @ts-expect-error a path that is not there
  await catalog.get("/catalog");
  // @ts-expect-error a method that the path has not
  await profile.delete("/users");
  // @ts-expect-error a service that is not there
  _.unknown;
  // @ts-expect-error the path's parameter is missing
  await catalog.get("/catalogs/{id}");
  // @ts-expect-error a parameter that is not there
  await catalog.get("/catalogs", { byer: 7 });
  // @ts-expect-error a value that the parameter has not
  await catalog.get("/catalogs", { sort: "newest" });
  // @ts-expect-error a number is due
  await catalog.get("/catalogs", { limit: true });
  // @ts-expect-error a member that is not there
  one.titel;
  // @ts-expect-error the body is missing
  await profile.post("/users/{id}/notices", undefined, { id: 7 });
  // @ts-expect-error the body's member has another name
  await profile.post("/users/{id}/notices", { txt: "x" }, { id: 7 });
  // @ts-expect-error nothing comes back but a number and so on
  const wrong: number = one.title;
  return { title, raw, wrong };
}
"#;

#[tokio::test]
async fn wrong_paths_parameters_and_members_are_type_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    write_types(folder.path(), &["examples/marketplace"]).await;
    std::fs::write(folder.path().join("wrong.ts"), WRONG_PROGRAM).expect("written");
    run_tsc(folder.path(), &["wrong.ts"]).await;
}

#[tokio::test]
async fn typescript_accepts_types_of_documents_of_every_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let documents = "crates/openapi/src/typescript/tests";
    let forge = format!("forge={documents}/swagger-2.0.yaml");
    let shop = format!("pet-shop={documents}/openapi-3.0.yaml");
    let museum = format!("museum={documents}/openapi-3.1.json");
    let told = write_types(folder.path(), &[&forge, &shop, &museum]).await;
    assert!(told.contains("3 services, 11 operations"), "{told}");
    let program = r#"
import type { Services, Program, forge } from "./orfa";
const program: Program = async (_, services: Services) => {
  const issues: forge.Issue[] = await services.forge.get("/api/v1/repos/{owner}/{repo}/issues", { owner: "a", repo: "b", state: "open" });
  const pets = await services["pet-shop"].get("/pets", { kind: "cat", "filter[name]": "x" });
  const { items } = await services.museum.get("/works");
  return [issues[0]?.milestone?.meta?.x, pets?.length, items[0]?.owner?.name];
};
export default program;
"#;
    std::fs::write(folder.path().join("program.ts"), program).expect("written");
    run_tsc(folder.path(), &["program.ts"]).await;
}

#[tokio::test]
async fn rejects_invalid_documents() {
    for (from, told) in [
        ("catalog=README.md", "README.md: "),
        ("catalog=nowhere.yaml", "can't be read"),
        ("=x", "not SERVICE=FILE"),
    ] {
        let refused = run_orfa(&["types", from]).await;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(64), "{said}");
        assert!(said.contains(told) && said.contains("bad-document"), "{said}");
    }
}
