//! A token issuer for tests, with valid and invalid tokens, and a server for its keys.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use ring::{hmac, signature};
use serde_json::{Value, json};
use services::{StreamedServiceBody, body};
use tokio::net::TcpListener;

/// A key that was generated for these tests.
const RSA_KEY: &str = "\
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQChmEj4rZDNTEWcnyxq34eW64upczJy1Oi+sb/c5hb/LNOf2aX9\
UHZXEwOoxkOPy0eyKq7R/MZJEvYi0u7aITHT0NtvKUuTk1pCpOccwR+XP0n+30l83Z2ZRCthpFJcZfiYGYgYRE6eeexBsaAyKXXi\
V3GpQmhYwwyc/sCv4XTSbJL5vLXizqWnwYjEuZDHF8I0jjEqpGgQ9f1HlS5FdIMoagk8LQv6e89FLH9DlPYwLFDj+IeMInXsiE9Y\
jpfUX6HtsJ4yrhkYQ5yobtUwd4IzF6uD/7DbyayugGu1QnXlKPdo8TKwgRYznlALan47mWF9UjcGw/ufLxz/Ihyo3tPBAgMBAAEC\
ggEAC2vq6x9tcYKiFZ4PMtCbfKMnwHGCz9NU+LbcjkhPDiMveV1rWjpihZNeT1gQH2zpTjeub+t+DQfY5iuNiVUOTgqK7/z1uWJm\
tKODgv3yyysZ16Nq8MyYiTmPGBGCvBgoWCvPJD6eZfIigkmD6U0SkXhycVm0bA2r6bl8ihHqmBLKrZAdG8bSWgJBBQKMyGjgMVhm\
XzcFVNJMb4CL959L1TxlUDIJa82Q3yr5k+XG3ENJF9HndZN8QVmo8nt5J6g6poiOYMHo39DewoEOgRXuPFm/RecUnwnraZRzTIFu\
jUg11uTjzf3MUdqftJZ8Jji9ch2+uBKGwZ04NHnUVo5C9wKBgQDbLSOvxEG/N6Nal+3Y/oEEtzL+1jGGFYFNnGX1NKT8tOkcK8RH\
rqpF7KLh0BQvC8vHRk7c74GN7ubQMqnSAOX8qk8Y0iMxmJi/axQadwxsoGVV2VQ6rPJ7xlz8cjNWNPInLw1XMrnVACNc/7O8f3BP\
dlucQ6KzyQUDTHPbwm/f/wKBgQC8votMoENMLE9rqXP1S+jqJowO0xPg4F5RKCs6H/K2qNc/lHmWuFMBVU3EYjs4kEZ83LGGwTL2\
4n2oqcMUqiSQvsAO0vRQ/Q1FFOj5QkAnFf/rvd1BNqF8E9Cr9JGq3Pu36aQKyXMo8LQ4RdVs5AW3/4Kjd6tmK3DXXkm8RylMPwKB\
gB1i8Pz5EGOl/xX/dtl4Ti4mrgSzDVLQAVU5mgYFd/WWAAdR6vA9gAD+GFy0fHBOYZUnXR2MU0+Hb5UMpe5NRojZAN/wFN3qeth3\
b+uYeKb73npjOELhu2VTFFaYrT9qu+j7Cwvc9kOT0CoA8sVcRN+ym9fYzbDTTAPENWiKqltbAoGBAJ0ZaG7GMl2zwANXzwnMPjiv\
DwLD1BboCfk5GwnNT8OTs13bYnz+PTCt5QXh0XMaO2FwfF8ybg4qpPb/Hj4UBE1qSAfOtMa4ahQm/GeEKkueNx7sML44D59sCtMl\
xR1XxDjnQsArvyvDde4kyilRfiURipYvZD2tSMYqV+tbu9cXAoGAMt+ysMMBc5aWgVA8xdg0w4XQ+ZBiDAM4qHeMxayddF0akNqm\
OdOTK/1VYaXNGvcg3EmOHGE1NZfIPnSmXP4nI/koucXOfWJPCO9aGfpdFxNA16jXlixvkXhMVO0ac//z4EHWH8++NepcdQuiz8EF\
1HL82HKw3x+sLIvTx75zyvU=";
const RSA_MODULUS: &str = "\
oZhI-K2QzUxFnJ8sat-HluuLqXMyctTovrG_3OYW_yzTn9ml_VB2VxMDqMZDj8tHsiqu0fzGSRL2ItLu2iEx09DbbylLk5NaQqTn\
HMEflz9J_t9JfN2dmUQrYaRSXGX4mBmIGEROnnnsQbGgMil14ldxqUJoWMMMnP7Ar-F00myS-by14s6lp8GIxLmQxxfCNI4xKqRo\
EPX9R5UuRXSDKGoJPC0L-nvPRSx_Q5T2MCxQ4_iHjCJ17IhPWI6X1F-h7bCeMq4ZGEOcqG7VMHeCMxerg_-\
w28msroBrtUJ15Sj3aPEysIEWM55QC2p-O5lhfVI3BsP7ny8c_yIcqN7TwQ";

pub(super) struct TestIssuer {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
}

/// A server for the keys. Its response can be changed, and it counts the requests.
#[derive(Clone)]
pub(super) struct JwksServer {
    pub(super) address: SocketAddr,
    response: Arc<Mutex<JwksServerResponse>>,
    request_count: Arc<AtomicUsize>,
}

#[derive(Clone)]
pub(super) enum JwksServerResponse {
    Text(String),
    Status(u16),
    /// A gigabyte.
    Endless,
    /// No response.
    Never,
}

impl TestIssuer {
    pub(super) fn new() -> Self {
        let random = SystemRandom::new();
        let rule = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let ec = EcdsaKeyPair::generate_pkcs8(rule, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(rule, ec.as_ref(), &random).unwrap();
        let rsa = RsaKeyPair::from_pkcs8(&STANDARD.decode(RSA_KEY).unwrap()).unwrap();
        Self { rsa, ec }
    }

    /// The key set: an RSA key `rsa` and an elliptic curve key with this ID.
    pub(super) fn keys(&self, ec: &str) -> String {
        let point = self.ec.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        let odd = json!({ "kty": "odd", "kid": "odd" });
        let rsa = json!({ "kty": "RSA", "kid": "rsa", "use": "sig", "alg": "RS256", "n": RSA_MODULUS, "e": "AQAB" });
        json!({ "keys": [odd, rsa, { "kty": "EC", "kid": ec, "crv": "P-256", "x": x, "y": y }] }).to_string()
    }

    pub(super) fn rsa_key(&self) -> &'static [u8] {
        RSA_MODULUS.as_bytes()
    }

    /// Returns a token with this header and these claims, signed with the header's algorithm: with the secret
    /// for `HS256`, not at all for `none`.
    pub(super) fn token(&self, header: &Value, claims: &Value, secret: &[u8]) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let random = SystemRandom::new();
        let signature = match header["alg"].as_str().unwrap() {
            "RS256" => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
            "ES256" => ecdsa(&self.ec, &random, &message),
            "HS256" => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes()).as_ref().to_vec()
            }
            _ => Vec::new(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A valid token signed with the RSA key.
    pub(super) fn valid_token(&self) -> String {
        self.token(&json!({ "alg": "RS256", "kid": "rsa" }), &claims(), b"")
    }

    /// A valid token signed with the elliptic curve key.
    pub(super) fn valid_token_by(&self, kid: &str) -> String {
        self.token(&json!({ "alg": "ES256", "kid": kid }), &claims(), b"")
    }
}

fn ecdsa(key: &EcdsaKeyPair, random: &SystemRandom, message: &str) -> Vec<u8> {
    let signature: signature::Signature = key.sign(random, message.as_bytes()).unwrap();
    signature.as_ref().to_vec()
}

/// The claims of a valid token.
pub(super) fn claims() -> Value {
    let now = jsonwebtoken::get_current_timestamp();
    json!({
        "iss": "https://login.example", "aud": ["shop", "other"], "sub": "ann", "exp": now + 3600, "nbf": now - 10,
        "groups": ["partners"], "realm_access": { "roles": ["admins"] },
    })
}

impl JwksServer {
    pub(super) async fn new(answer: JwksServerResponse) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let jwks_server =
            Self { address, response: Arc::new(Mutex::new(answer)), request_count: Arc::default() };
        let served = jwks_server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let place = served.clone();
                let service = service_fn(move |request| place.clone().serve(request));
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        jwks_server
    }

    async fn serve(self, _: Request<Incoming>) -> Result<Response<StreamedServiceBody>, hyper::Error> {
        self.request_count.fetch_add(1, SeqCst);
        let answer = self.response.lock().unwrap().clone();
        Ok(match answer {
            JwksServerResponse::Text(text) => Response::new(body::full(text)),
            JwksServerResponse::Status(status) => {
                Response::builder().status(status).body(body::empty()).unwrap()
            }
            JwksServerResponse::Endless => {
                let piece = Bytes::from(vec![b' '; 1 << 16]);
                let pieces =
                    futures_util::stream::iter((0..1 << 14).map(move |_| Ok(Frame::data(piece.clone()))));
                Response::new(StreamBody::new(pieces).boxed_unsync())
            }
            JwksServerResponse::Never => std::future::pending().await,
        })
    }

    pub(super) fn set_response(&self, answer: JwksServerResponse) {
        *self.response.lock().unwrap() = answer;
    }

    pub(super) fn request_count(&self) -> usize {
        self.request_count.load(SeqCst)
    }
}
