//! Who may see the pages: those who know the server's token.
//!
//! A browser sends no bearer token by itself, so a form takes it once and gives a cookie for it. The cookie is made of
//! the token's hash: whoever steals it can read these pages, and cannot use the API.

use super::html::{Html, html};
use super::page::{frame, logo};
use super::{redirect, respond};
use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use sha2::{Digest, Sha256};
use std::fmt::Write;

const COOKIE: &str = "orbit_ui";
/// How long a browser keeps the cookie, in seconds.
const KEPT: u32 = 12 * 3600;

/// The token, if there is one, as hashes: comparing them tells nothing of where two secrets differ.
pub struct Door {
    lock: Option<Lock>,
}

struct Lock {
    token: [u8; 32],
    cookie: String,
}

impl Door {
    pub fn new(token: Option<&str>) -> Door {
        let lock = token.map(|token| {
            let mut cookie = String::new();
            for byte in hash("cookie", token.as_bytes()) {
                write!(cookie, "{byte:02x}").expect("writing to a text does not fail");
            }
            Lock { token: hash("token", token.as_bytes()), cookie }
        });
        Door { lock }
    }

    /// Whether there is a token at all.
    pub fn has_lock(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether a request may pass: by its cookie, or by the token itself as in the API.
    pub fn is_open(&self, request: &Request<Bytes>) -> bool {
        let Some(lock) = &self.lock else { return true };
        let bearer = request.headers().get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
        });
        if bearer.is_some_and(|token| hash("token", token) == lock.token) {
            return true;
        }
        let cookies = request.headers().get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let given = cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        given
            .filter(|(name, _)| *name == COOKIE)
            .any(|(_, value)| hash("cookie again", value.as_bytes()) == hash("cookie again", lock.cookie.as_bytes()))
    }

    /// The answers to signing in and out; none to other requests.
    pub fn sign(&self, request: &Request<Bytes>) -> Option<Response<Bytes>> {
        match (request.uri().path(), request.method()) {
            ("/ui/sign-in", &Method::POST) => Some(self.sign_in(request)),
            ("/ui/sign-in", &Method::GET | &Method::HEAD) if !self.is_open(request) => {
                Some(respond(StatusCode::OK, page("/ui/", false)))
            }
            ("/ui/sign-in", &Method::GET | &Method::HEAD) => Some(redirect("/ui/")),
            ("/ui/sign-out", &Method::POST) => {
                let mut response = redirect("/ui/sign-in");
                set_cookie(&mut response, "", 0, false);
                Some(response)
            }
            _ => None,
        }
    }

    fn sign_in(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let field = |name: &str| {
            let fields = request.body().split(|byte| *byte == b'&');
            let mut fields = fields.filter_map(|field| field.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            fields.next().map(decoded)
        };
        let target = field("to").and_then(|to| String::from_utf8(to).ok()).filter(|to| is_page(to));
        let target = target.as_deref().unwrap_or("/ui/");
        let Some(lock) = &self.lock else { return redirect(target) };
        if field("token").is_none_or(|token| hash("token", &token) != lock.token) {
            return respond(StatusCode::UNAUTHORIZED, page(target, true));
        }
        let secure = request.headers().get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        let mut response = redirect(target);
        set_cookie(&mut response, &lock.cookie, KEPT, secure);
        response
    }
}

fn hash(what_for: &str, secret: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(format!("orbit ui {what_for}\0")).chain_update(secret).finalize().into()
}

fn set_cookie(response: &mut Response<Bytes>, value: &str, seconds: u32, secure: bool) {
    let secure = if secure { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path=/ui; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let cookie = HeaderValue::from_str(&cookie).expect("a cookie is made of visible ASCII");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
}

/// Whether a target is one of these pages, and no other site's.
fn is_page(target: &str) -> bool {
    target.starts_with("/ui/") && !target.starts_with("/ui//") && target.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A field of a form, as browsers encode it.
pub fn decoded(field: &[u8]) -> Vec<u8> {
    let digit = |at: usize| field.get(at).and_then(|digit| char::from(*digit).to_digit(16));
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(byte) = field.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high << 4 | low).expect("two hexadecimal digits"));
                at += 2;
            }
            (b'+', ..) => bytes.push(b' '),
            (other, ..) => bytes.push(*other),
        }
        at += 1;
    }
    bytes
}

/// The form. After it the browser goes on to `target`.
pub fn page(target: &str, wrong: bool) -> Html {
    let notice = wrong.then(|| html!("<p class=\"notice\" role=\"alert\"><b>That is not this server's token.</b></p>"));
    let form = html!(
        "<main><form class=\"card sign-in\" method=\"post\" action=\"/ui/sign-in\"><h1>Sign in</h1>\
         <p class=\"quiet small\">This server has a token (<code>--token</code>, <code>ORBIT_TOKEN</code>).</p>{}\
         <input type=\"hidden\" name=\"to\" value=\"{}\">\
         <label>Token<input type=\"password\" name=\"token\" autocomplete=\"current-password\" required autofocus></label>\
         <button>Sign in</button></form></main>",
        notice,
        target
    );
    frame("Sign in", None, html!("<header><div>{}</div></header>{}", logo(), form))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Bytes> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Bytes::from(body.to_owned())).expect("a request")
    }

    fn header<'r>(response: &'r Response<Bytes>, name: &str) -> &'r str {
        response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
    }

    #[test]
    fn without_a_token_the_door_is_open() {
        let door = Door::new(None);
        assert!(door.is_open(&request("GET", "/ui/", &[], "")));
        assert!(!door.has_lock());
    }

    #[test]
    fn the_right_token_gives_a_cookie_that_opens_the_door() {
        let door = Door::new(Some("se/cret +ä"));
        assert!(!door.is_open(&request("GET", "/ui/", &[], "")));
        let body = "to=%2Fui%2Fworkers&token=se%2Fcret+%2B%C3%A4";
        let response = door.sign(&request("POST", "/ui/sign-in", &[], body)).expect("an answer");
        assert_eq!((response.status(), header(&response, "location")), (StatusCode::SEE_OTHER, "/ui/workers"));
        let cookie = header(&response, "set-cookie");
        let (pair, attributes) = cookie.split_once(';').expect("attributes");
        assert_eq!(attributes, " Path=/ui; Max-Age=43200; HttpOnly; SameSite=Strict");
        assert!(!pair.contains("cret"), "{pair}");
        let cookies = format!("other=1; {pair}");
        assert!(door.is_open(&request("GET", "/ui/", &[("cookie", &cookies)], "")));
        // Another server's cookie does not.
        assert!(!Door::new(Some("other")).is_open(&request("GET", "/ui/", &[("cookie", pair)], "")));
    }

    #[test]
    fn a_cookie_of_an_encrypted_connection_stays_on_such() {
        let door = Door::new(Some("secret"));
        let headers = [("x-forwarded-proto", "https")];
        let response = door.sign(&request("POST", "/ui/sign-in", &headers, "token=secret")).expect("an answer");
        assert!(header(&response, "set-cookie").ends_with("; Secure"));
    }

    #[test]
    fn the_bearer_token_opens_the_door_too_and_nothing_else_does() {
        let door = Door::new(Some("secret"));
        assert!(door.is_open(&request("GET", "/ui/", &[("authorization", "bearer secret")], "")));
        for value in ["Bearer secre", "Basic secret", "Bearer", ""] {
            assert!(!door.is_open(&request("GET", "/ui/", &[("authorization", value)], "")), "{value}");
        }
        for value in ["orbit_ui=", "orbit_ui=secret", "orbit_ui", "=", ""] {
            assert!(!door.is_open(&request("GET", "/ui/", &[("cookie", value)], "")), "{value}");
        }
        for body in ["", "token=", "token=secre", "token=secret%", "nekot=secret", "xtoken=secret"] {
            let response = door.sign(&request("POST", "/ui/sign-in", &[], body)).expect("an answer");
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{body}");
            assert_eq!(header(&response, "set-cookie"), "");
        }
    }

    #[test]
    fn signing_in_leads_to_no_other_site() {
        let door = Door::new(Some("secret"));
        for target in ["https://example.com/", "//example.com", "/ui//example.com", "/ui/%0d%0aset-cookie:x", "/v1/x"] {
            let encoded: String = target.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let body = format!("token=secret&to={encoded}");
            let response = door.sign(&request("POST", "/ui/sign-in", &[], &body)).expect("an answer");
            let location = header(&response, "location");
            assert!(location == "/ui/" || location == "/ui/%0d%0aset-cookie:x", "{target} leads to {location}");
        }
    }

    #[test]
    fn signing_out_takes_the_cookie_away() {
        let response = Door::new(Some("secret")).sign(&request("POST", "/ui/sign-out", &[], "")).expect("an answer");
        assert!(header(&response, "set-cookie").starts_with("orbit_ui=; Path=/ui; Max-Age=0; HttpOnly"));
    }
}
