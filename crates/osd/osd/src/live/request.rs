//! What a scraper asks for.

/// Longest request, bytes; a scraper's has some hundred.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// A page that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// `/`: what there is.
    Index,
    /// `/metrics`: Prometheus text.
    Metrics,
    /// `/metrics.json`, only names that begin with this.
    MetricsJson(String),
}

/// What the bytes so far are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Not a whole request yet.
    Partial,
    /// One that cannot be answered: status and reason.
    Refused(u16, &'static str),
    /// A page; without its body if only the head is wanted.
    Get { page: Page, head_only: bool },
}

/// Reads a request. Never more than a look at `bytes`: what follows the head is ignored.
pub(crate) fn parse(bytes: &[u8]) -> Request {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= REQUEST_BYTES_MAX => {
            Request::Refused(431, "Request Header Fields Too Large")
        }
        Ok(httparse::Status::Partial) => Request::Partial,
        Err(httparse::Error::TooManyHeaders) => Request::Refused(431, "Request Header Fields Too Large"),
        Err(_) => Request::Refused(400, "Bad Request"),
        Ok(httparse::Status::Complete(_)) => {
            let head_only = match request.method {
                Some("GET") => false,
                Some("HEAD") => true,
                _ => return Request::Refused(405, "Method Not Allowed"),
            };
            match request.path.and_then(page) {
                Some(page) => Request::Get { page, head_only },
                None => Request::Refused(404, "Not Found"),
            }
        }
    }
}

fn page(target: &str) -> Option<Page> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/" => Some(Page::Index),
        "/metrics" => Some(Page::Metrics),
        "/metrics.json" => {
            let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
            Some(Page::MetricsJson(prefix.unwrap_or_default().to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(target: &str) -> Request {
        parse(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
    }

    fn wanted(page: Page) -> Request {
        Request::Get { page, head_only: false }
    }

    #[test]
    fn pages() {
        assert_eq!(get("/"), wanted(Page::Index));
        assert_eq!(get("/metrics"), wanted(Page::Metrics));
        assert_eq!(get("/metrics.json"), wanted(Page::MetricsJson(String::new())));
        assert_eq!(get("/metrics.json?a=b&prefix=reactor_"), wanted(Page::MetricsJson("reactor_".into())));
        assert_eq!(get("/metrics/"), Request::Refused(404, "Not Found"));
        let head = parse(b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert_eq!(head, Request::Get { page: Page::Metrics, head_only: true });
    }

    #[test]
    fn what_is_no_request() {
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost"), Request::Partial);
        assert_eq!(parse(b"POST /metrics HTTP/1.1\r\n\r\n"), Request::Refused(405, "Method Not Allowed"));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01\x00"), Request::Refused(400, "Bad Request"));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert!(matches!(parse(many.as_bytes()), Request::Refused(431, _)));
        let long = format!("GET /{}", "a".repeat(REQUEST_BYTES_MAX));
        assert!(matches!(parse(long.as_bytes()), Request::Refused(431, _)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
