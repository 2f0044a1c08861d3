//! Address that a client called from, and the trace of its request. Both are for people: no decision depends on them.

use alloc::string::String;
use alloc::sync::Arc;
use core::convert::Infallible;
use core::fmt::{self, Debug, Display, Formatter, Write as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Address that a client called from: a host and a port, or any text. If the request was traced, its trace context follows after a space, in the
/// form of W3C's `traceparent`: `10.0.0.7:4711 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
///
/// One text for both means that requests without a trace cost nothing, and that the formats of commands, snapshots, backups and the lock history
/// are those of programs that know no traces. Such a program shows both.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CallerAddress(Arc<str>);

/// Trace of a request, and the span of the request in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Id of the trace. Not 0.
    pub trace: u128,
    /// Id of the span. Not 0.
    pub span: u64,
}

impl TraceContext {
    /// Length of its text.
    const BYTES: usize = 55;

    /// Reads what [`Display`] writes.
    fn parse(text: &str) -> Option<Self> {
        if text.len() != Self::BYTES {
            return None;
        }
        let (trace, rest) = text.strip_prefix("00-")?.split_at_checked(32)?;
        let span = rest.strip_prefix('-')?.strip_suffix("-01")?;
        let context = Self {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
        };
        (context.trace != 0 && context.span != 0).then_some(context)
    }
}

impl Display for TraceContext {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { trace, span } = self;
        write!(f, "00-{trace:032x}-{span:016x}-01")
    }
}

impl CallerAddress {
    /// Returns the address of a traced request.
    #[must_use]
    pub fn traced(&self, context: TraceContext) -> Self {
        let host = self.host();
        let mut text = String::with_capacity(host.len() + 1 + TraceContext::BYTES);
        write!(text, "{host} {context}").expect("a String takes any text");
        Self(text.into())
    }

    /// Returns the address without the trace.
    pub fn host(&self) -> &str {
        self.split().0
    }

    /// Returns the trace of the request, if it was traced.
    pub fn trace(&self) -> Option<TraceContext> {
        self.split().1
    }

    /// Returns both as one text, as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn split(&self) -> (&str, Option<TraceContext>) {
        let end = self.0.len().wrapping_sub(TraceContext::BYTES + 1);
        match self.0.split_at_checked(end) {
            Some((host, rest)) => match rest.strip_prefix(' ').and_then(TraceContext::parse) {
                Some(context) => (host, Some(context)),
                None => (&self.0, None),
            },
            None => (&self.0, None),
        }
    }
}

impl<T: Into<Arc<str>>> From<T> for CallerAddress {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Debug for CallerAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

/// Shows the address without the trace.
impl Display for CallerAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.host())
    }
}

impl Serialize for CallerAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for CallerAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::model::text::read(deserializer, |text| Ok::<_, Infallible>(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: TraceContext = TraceContext {
        trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
        span: 0x00f0_67aa_0ba9_02b7,
    };

    #[test]
    fn traced_address_has_both_parts() {
        let plain = CallerAddress::from("10.0.0.7:4711");
        assert_eq!((plain.host(), plain.trace()), ("10.0.0.7:4711", None));
        let traced = plain.traced(CONTEXT);
        assert_eq!(
            traced.as_str(),
            "10.0.0.7:4711 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        );
        assert_eq!((traced.host(), traced.trace()), ("10.0.0.7:4711", Some(CONTEXT)));
        let retraced = traced.traced(TraceContext { span: 7, ..CONTEXT });
        assert_eq!(
            (retraced.host(), retraced.trace().map(|of| of.span)),
            ("10.0.0.7:4711", Some(7))
        );
        let unnamed = CallerAddress::default().traced(CONTEXT);
        assert_eq!((unnamed.host(), unnamed.trace()), ("", Some(CONTEXT)));
    }

    #[test]
    fn other_texts_are_addresses_only() {
        let good = CallerAddress::from("h").traced(CONTEXT);
        for bad in [
            "",
            "a host",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            &good.as_str().replace("4bf9", "+bf9").replace("-01", "-02"),
            &good.as_str().replace("-00f0", "x00f0"),
            &good.as_str().replace(" 00", "  0"),
            "h 00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "h 00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "é 00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            let address = CallerAddress::from(bad);
            assert_eq!((address.host(), address.trace()), (bad, None));
        }
    }
}
