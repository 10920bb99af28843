//! Where a link ends: a device, in a network namespace.

use std::fmt;
use std::str::FromStr;

use crate::args::DeviceName;

/// A TUN device by name, and the network namespace in which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) device: String,
    /// As `ip netns` calls it. None is that of this process.
    pub(super) namespace: Option<String>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let (device, namespace) = match text.split_once('@') {
            Some((device, namespace)) => (device, Some(namespace)),
            None => (text, None),
        };
        if namespace.is_some_and(|name| name.is_empty() || name.contains('/')) {
            return Err(format!("'{text}' has no usable namespace; try tun:left@NAME"));
        }
        let DeviceName(device) = device.parse()?;
        Ok(Place { device, namespace: namespace.map(str::to_owned) })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tun:{}", self.device)?;
        self.namespace.as_ref().map_or(Ok(()), |name| write!(f, "@{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_device_and_maybe_a_namespace() {
        for text in ["tun:left", "tun:left@other"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for (text, named) in [
            ("left", "unknown device"),
            ("tun:left@", "no usable namespace"),
            ("tun:left@a/b", "no usable namespace"),
            ("tun:a-name-that-is-too-long", "interface name"),
        ] {
            let error = text.parse::<Place>().unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
