//! A request that a client can send repeatedly.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client::{BenchClient, BenchResponse};

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct PreparedCall {
    method: Method,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl PreparedCall {
    /// Creates a GET request.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    /// Creates a POST request with this body.
    #[must_use]
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, body)
    }

    /// Creates a request with a JSON body.
    #[must_use]
    pub fn json(method: Method, path: impl Into<String>, body: &Value) -> Self {
        let json = HeaderValue::from_static("application/json");
        Self::new(method, path, body.to_string()).with_header(CONTENT_TYPE, json)
    }

    /// Creates a GraphQL request as GraphQL clients send it.
    #[must_use]
    pub fn graphql(path: impl Into<String>, query: &str) -> Self {
        Self::json(Method::POST, path, &json!({ "query": query })).accepting_json()
    }

    /// Creates a request.
    #[must_use]
    pub fn new(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: body.into() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds an `accept` header for JSON.
    #[must_use]
    pub fn accepting_json(self) -> Self {
        self.with_header(ACCEPT, HeaderValue::from_static("application/json"))
    }

    /// Builds the HTTP request.
    ///
    /// # Errors
    /// Fails if the path is invalid.
    pub fn request(&self) -> Result<Request<Full<Bytes>>> {
        let request = Request::builder().method(&self.method).uri(&self.path);
        let mut request = request.body(Full::new(self.body.clone())).with_context(|| self.path.clone())?;
        request.headers_mut().extend(self.headers.iter().cloned());
        Ok(request)
    }

    /// Sends the request and returns a successful response.
    ///
    /// # Errors
    /// Fails without a response, or with an error status.
    pub async fn send(&self, client: &BenchClient) -> Result<BenchResponse> {
        let Self { method, path, .. } = self;
        let answer = client.send(self.request()?).await.with_context(|| format!("{method} {path}"))?;
        let text = || String::from_utf8_lossy(&answer.body);
        ensure!(answer.status.is_success(), "{method} {path}: {} {}", answer.status, text());
        Ok(answer)
    }

    /// Generates a Lua script for wrk that sends these requests in turn.
    ///
    /// # Errors
    /// Fails if a header is not text.
    pub fn lua_script(calls: &[Self]) -> Result<String> {
        let calls: Vec<String> = calls.iter().map(Self::lua_table).collect::<Result<_>>()?;
        Ok(match calls.as_slice() {
            // A constant request is built once.
            [one] => format!("wrk.method, wrk.path, wrk.headers, wrk.body = unpack({one})\n"),
            calls => format!(
                "local calls, next = {{ {} }}, 0\nrequest = function()\n  next = next % #calls + 1\n  \
                   return wrk.format(unpack(calls[next]))\nend\n",
                calls.join(", ")
            ),
        })
    }

    /// A Lua table of method, path, headers and body.
    fn lua_table(&self) -> Result<String> {
        let Self { method, path, headers, body } = self;
        let body: String = body.iter().map(|byte| format!("\\{byte:03}")).collect();
        let mut table = String::new();
        for (name, value) in headers {
            table += &format!("['{name}']='{}',", value.to_str()?);
        }
        Ok(format!("{{ '{method}', '{path}', {{ {table} }}, '{body}' }}"))
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_build_the_same_request_each_time() {
        let call = PreparedCall::graphql("/graphql", "{ a }");
        for _ in 0..2 {
            let request = call.request().expect("a request");
            assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/graphql"));
            assert_eq!(request.headers()[CONTENT_TYPE], request.headers()[ACCEPT]);
        }
    }

    #[test]
    fn scripts_escape_binary_bodies() {
        let length = (HeaderName::from_static("orfa-input"), HeaderValue::from_static("2"));
        let query = PreparedCall::post("/query", vec![0, 255]).with_header(length.0, length.1);
        let script = PreparedCall::lua_script(&[PreparedCall::get("/a"), query]).expect("a script");
        assert!(script.contains("{ 'GET', '/a', {  }, '' }"), "{script}");
        assert!(script.contains("{ 'POST', '/query', { ['orfa-input']='2', }, '\\000\\255' }"), "{script}");
    }
}
