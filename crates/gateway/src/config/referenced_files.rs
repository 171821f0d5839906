//! The files that a config names, which are watched for changes.

use std::path::{Path, PathBuf};

use graphql::GraphqlConfig;

use super::auth::is_url;
use super::{GatewayConfig, companion_files, read_file, renamed_keys};

impl GatewayConfig {
    /// Registers all files that the config names, so that they are watched.
    pub(super) fn note_files(&mut self) {
        let documents = self.services.values().filter_map(|service| service.openapi.as_deref());
        documents.for_each(|document| self.source.note_file(document));
        let tls = self.services.values().filter_map(|service| service.tls.as_ref());
        tls.flat_map(|tls| tls.files()).for_each(|file| self.source.note_file(file));
        let filters = self.routes.iter().flat_map(|route| &route.filters);
        filters.for_each(|filter| self.source.note_file(&filter.wasm));
        self.note_stored_programs();
        self.note_scripts();
        self.note_aggregates();
        for file in watched_graphql_files(self) {
            self.source.note_path(file);
        }
        let keys = self.auth.jwt.as_ref().and_then(|jwt| jwt.jwks.as_deref());
        keys.filter(|keys| !is_url(keys)).iter().for_each(|keys| self.source.note_file(keys));
    }

    /// Registers scripts and the files that they import.
    fn note_scripts(&mut self) {
        let scripts = self.routes.iter().filter_map(|route| route.script.as_ref());
        for file in scripts.map(|script| script.options().file).collect::<Vec<_>>() {
            self.source.note_file(&file);
            let imported = imported_files(&self.source.folder().join(file));
            imported.into_iter().for_each(|file| self.source.note_path(file));
        }
    }

    /// Registers declarations of aggregates, the files that they include, and warnings about their old keys.
    pub(super) fn note_aggregates(&mut self) {
        let folder = self.source.folder().to_owned();
        let aggregates = self.routes.iter().filter_map(|route| route.aggregate.as_ref());
        let inspect = |aggregate: &aggregate::AggregateConfig| {
            companion_files::inspect(&folder.join(aggregate.file()), renamed_keys::DECLARATION)
        };
        for read in aggregates.map(inspect).collect::<Vec<_>>() {
            read.files().iter().for_each(|file| self.source.note_path(file.clone()));
            read.warnings().iter().for_each(|warning| self.source.warn(warning.clone()));
        }
    }

    /// Registers stored programs and their folders, to which new ones may be added.
    fn note_stored_programs(&mut self) {
        let folder = self.source.folder().to_owned();
        let queries = self.routes.iter().filter_map(|route| route.query.as_ref());
        for file in
            queries.flat_map(|query| &query.stored).flat_map(|list| query::stored_files(&folder, list))
        {
            file.parent().into_iter().for_each(|folder| self.source.note_path(folder.to_owned()));
            self.source.note_path(file);
        }
    }

    /// The GraphQL routes, each with the index of its route.
    pub(crate) fn graphql_routes(&self) -> impl Iterator<Item = (usize, &GraphqlConfig)> {
        let routes = self.routes.iter().enumerate();
        routes.filter_map(|(index, route)| Some((index, route.graphql.as_ref()?)))
    }
}

/// The files that GraphQL routes and services name, to be watched, and their folders, since new documents may
/// be added.
#[must_use]
pub fn watched_graphql_files(config: &GatewayConfig) -> Vec<PathBuf> {
    let folder = config.source.folder();
    let schemas = config.services.values().filter_map(|service| service.graphql.as_ref()?.schema.as_ref());
    let mut files: Vec<PathBuf> = schemas.map(|schema| folder.join(schema)).collect();
    for (_, graphql) in config.graphql_routes() {
        files.extend(graphql.supergraph.iter().map(|file| folder.join(file)));
        files.extend(graphql.links.iter().flat_map(|file| companion_files::list_files(&folder.join(file))));
        if let Some(pattern) = graphql.documents() {
            files.extend(folder.join(pattern).parent().map(Path::to_path_buf));
            files.extend(matching_files(folder, pattern).unwrap_or_default());
        }
    }
    files
}

/// Returns the files that a script imports.
fn imported_files(file: &Path) -> Vec<PathBuf> {
    let script_program = read_file(file)
        .ok()
        .and_then(|text| script::compile(&text, "", &script::CompileOptions::default()).ok());
    let folder = file.parent().unwrap_or(Path::new(""));
    let modules =
        script_program.map(|program| script_runtime::imported_modules(&program, folder)).unwrap_or_default();
    modules.into_iter().map(|(file, _)| file).collect()
}

/// Returns the files that match a pattern, in the order of their names.
pub(crate) fn matching_files(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    // The folder's own name isn't a pattern.
    let folder = glob::Pattern::escape(&folder.to_string_lossy());
    let found = glob::glob(&Path::new(&folder).join(pattern).to_string_lossy())
        .map_err(|error| format!("`{pattern}` is not a valid pattern: {error}"))?;
    let mut files: Vec<PathBuf> = found.filter_map(Result::ok).filter(|file| file.is_file()).collect();
    files.sort();
    Ok(files)
}
