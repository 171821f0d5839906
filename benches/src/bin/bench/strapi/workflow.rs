//! The workflows, and their implementation in clients without programs.

use anyhow::{Result, bail};
use benches::call::PreparedCall;
use serde_json::{Value, json};

use super::session::{StrapiSession, graphql_call, put_call};
use super::variant::StrapiVariant;

/// A workflow of the paper's table 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PaperWorkflow {
    /// `strapi.r`: the articles of each of N categories.
    Read,
    /// `strapi.w`: a relation from a tag to each of N articles.
    Write,
}

impl PaperWorkflow {
    pub(super) const ALL: [Self; 2] = [Self::Read, Self::Write];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "strapi.r",
            Self::Write => "strapi.w",
        }
    }

    /// The input of a program.
    pub(super) fn input(self, size: usize, tag: &str) -> Value {
        match self {
            Self::Read => json!({ "n": size }),
            Self::Write => json!({ "n": size, "tag": tag }),
        }
    }

    /// Runs the workflow in a variant without programs. Returns its result.
    pub(super) async fn run_variant(
        self,
        session: &mut StrapiSession<'_>,
        variant: StrapiVariant,
        size: usize,
        tag: &str,
    ) -> Result<Value> {
        match (self, variant) {
            (Self::Read, StrapiVariant::Sequential | StrapiVariant::Parallel) => {
                read_rest(session, size).await
            }
            (Self::Read, StrapiVariant::Graphql) => read_graphql(session, size).await,
            (Self::Read, StrapiVariant::Nested) => read_nested(session, size).await,
            (Self::Read, StrapiVariant::FewestCalls) => read_best(session, size).await,
            (Self::Write, StrapiVariant::Sequential | StrapiVariant::Parallel) => {
                write_rest(session, size, tag).await
            }
            (Self::Write, StrapiVariant::Graphql) => write_graphql(session, size, tag).await,
            (Self::Write, StrapiVariant::FewestCalls) => write_best(session, size, tag).await,
            (Self::Write, StrapiVariant::Nested) | (_, StrapiVariant::Program(..)) => {
                bail!("{variant} does not support this workflow")
            }
        }
    }
}

/// The requests of a client for `strapi.r` with REST, given the list, and with GraphQL.
pub(super) async fn read_calls(
    session: &mut StrapiSession<'_>,
    size: usize,
) -> Result<[Vec<PreparedCall>; 2]> {
    let list = session.call(categories(size)).await?;
    let calls = std::iter::once(categories(size)).chain(as_items(&list).iter().map(articles)).collect();
    let graphql = vec![graphql_call(&categories_document(size)), graphql_call(&articles_document(&list))];
    Ok([calls, graphql])
}

fn categories(size: usize) -> PreparedCall {
    PreparedCall::get(format!("/api/categories?sort=name&pagination[limit]={size}"))
}

fn articles(category: &Value) -> PreparedCall {
    let id = as_text(&category["documentId"]);
    PreparedCall::get(format!("/api/articles?filters[category][documentId]={id}&sort=title"))
}

fn categories_document(size: usize) -> String {
    format!("{{categories(sort:\"name\",pagination:{{limit:{size}}}){{documentId name}}}}")
}

fn articles_document(categories: &Value) -> String {
    let articles = |(i, category): (usize, &Value)| {
        let id = &category["documentId"];
        format!("a{i}:articles(filters:{{category:{{documentId:{{eq:{id}}}}}}},sort:\"title\"){{title}}")
    };
    let articles: String = as_items(categories).iter().enumerate().map(articles).collect();
    format!("{{{articles}}}")
}

async fn read_rest(session: &mut StrapiSession<'_>, size: usize) -> Result<Value> {
    let categories = session.call(categories(size)).await?;
    let articles = session.call_all(as_items(&categories).iter().map(articles).collect()).await?;
    Ok(as_items(&categories)
        .iter()
        .zip(&articles)
        .map(|(category, articles)| row(category, articles))
        .collect())
}

async fn read_best(session: &mut StrapiSession<'_>, size: usize) -> Result<Value> {
    let path = format!(
        "/api/categories?fields=name&populate[articles][fields]=title&populate[articles][sort]=title\
         &sort=name&pagination[limit]={size}"
    );
    let categories = session.call(PreparedCall::get(path)).await?;
    Ok(as_items(&categories).iter().map(|category| row(category, &category["articles"])).collect())
}

async fn read_graphql(session: &mut StrapiSession<'_>, size: usize) -> Result<Value> {
    let categories = session.graphql(&categories_document(size)).await?["categories"].take();
    let articles = session.graphql(&articles_document(&categories)).await?;
    let row = |(i, category): (usize, &Value)| row(category, &articles[format!("a{i}")]);
    Ok(as_items(&categories).iter().enumerate().map(row).collect())
}

async fn read_nested(session: &mut StrapiSession<'_>, size: usize) -> Result<Value> {
    let query = format!(
        "{{categories(sort:\"name\",pagination:{{limit:{size}}}){{name articles(sort:\"title\"){{title}}}}}}"
    );
    let categories = session.graphql(&query).await?["categories"].take();
    Ok(as_items(&categories).iter().map(|category| row(category, &category["articles"])).collect())
}

async fn write_rest(session: &mut StrapiSession<'_>, size: usize, tag: &str) -> Result<Value> {
    let articles = PreparedCall::get(format!("/api/articles?sort=published&pagination[limit]={size}"));
    let articles = session.call(articles).await?;
    let connect = |article: &Value| {
        let path = format!("/api/articles/{}", as_text(&article["documentId"]));
        put_call(path, &json!({ "data": { "tags": { "connect": [tag] } } }))
    };
    let values = session.call_all(as_items(&articles).iter().map(connect).collect()).await?;
    Ok(pluck(&Value::from(values), "title"))
}

async fn write_best(session: &mut StrapiSession<'_>, size: usize, tag: &str) -> Result<Value> {
    let articles = format!("/api/articles?fields=title&sort=published&pagination[limit]={size}");
    let articles = session.call(PreparedCall::get(articles)).await?;
    let connect = json!({ "data": { "articles": { "connect": pluck(&articles, "documentId") } } });
    session.call(put_call(format!("/api/tags/{tag}"), &connect)).await?;
    Ok(pluck(&articles, "title"))
}

async fn write_graphql(session: &mut StrapiSession<'_>, size: usize, tag: &str) -> Result<Value> {
    let articles = format!("{{articles(sort:\"published\",pagination:{{limit:{size}}}){{documentId}}}}");
    let articles = session.graphql(&articles).await?["articles"].take();
    let update = |(i, article): (usize, &Value)| {
        let id = &article["documentId"];
        format!("a{i}:updateArticle(documentId:{id},data:{{tags:[\"{tag}\"]}}){{title}}")
    };
    let updates: String = as_items(&articles).iter().enumerate().map(update).collect();
    let value = session.graphql(&format!("mutation{{{updates}}}")).await?;
    let title = |i: usize| value[format!("a{i}")]["title"].clone();
    Ok((0..as_items(&articles).len()).map(title).collect())
}

fn row(category: &Value, articles: &Value) -> Value {
    json!({ "name": category["name"], "articles": pluck(articles, "title") })
}

fn pluck(rows: &Value, field: &str) -> Value {
    as_items(rows).iter().map(|row| row[field].clone()).collect()
}

/// The elements of an array. Any other value gives none, which the comparison of results then reports.
fn as_items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn as_text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
