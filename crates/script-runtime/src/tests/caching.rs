//! The cache headers of responses that depend on the client's headers.

use http::Request;
use http::header::{CACHE_CONTROL, HeaderName, VARY};
use services::body;

use super::fixture::{ScriptFixture, default_settings};

const SHOP: &str = "
service shop {
  state visits = 0
  res '/plain' on GET { respond query.a || 'none' }
  res '/language' on GET { respond query.$headers['accept-language'] || 'en' }
  res '/cookie' on GET { respond query.$headers.cookie || 'none' }
  res '/visits' on GET { respond visits }
  res '/internal' on GET { res visited = '/visits'; respond { visits: visited.get() } }
  res '/rooms' on POST {
    var code = query.code
    res '/rooms/' + query.id on GET { respond code }
  }
  res '/any' on GET { respond query.$headers }
  res '/own' on GET {
    response.headers['Cache-Control'] = 'public, max-age=9'
    response.headers.Vary = 'Cookie'
    respond query.$headers.cookie || 'none'
  }
  res '/change' on POST { visits++; respond query.$headers.cookie || 'none' }
}";

#[tokio::test]
async fn a_response_varies_by_the_headers_it_used_and_is_private_with_credentials() {
    let fixture = ScriptFixture::from_source(SHOP, default_settings()).await;
    for (method, path, control, varies) in [
        ("GET", "/plain", "", ""),
        ("GET", "/language", "", "accept-language"),
        ("GET", "/cookie", "private", "cookie"),
        ("HEAD", "/cookie", "private", "cookie"),
        ("GET", "/any", "private", ""),
        ("GET", "/visits", "private", ""),
        ("GET", "/internal", "private", ""),
        ("POST", "/rooms?id=1&code=7", "", ""),
        ("GET", "/rooms/1", "private", ""),
        ("GET", "/own", "public, max-age=9", "Cookie"),
        ("POST", "/change", "", ""),
    ] {
        let request = Request::builder().method(method).uri(path).header("cookie", "id=7");
        let answer = fixture.send(request.body(body::empty()).expect("a request")).await.expect("an answer");
        let all = |name: HeaderName| {
            let values = answer.headers().get_all(name).iter().map(|value| value.to_str().expect("text"));
            values.collect::<Vec<_>>().join(", ")
        };
        assert_eq!((all(CACHE_CONTROL), all(VARY)), (control.into(), varies.into()), "{method} {path}");
    }
}
