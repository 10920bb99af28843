//! Two namespaces of the kernel, joined by a veth pair.

use anyhow::Result;

use super::netns::Namespace;

/// The address of [`Veth::near`].
pub(crate) const NEAR: &str = "198.51.100.1";
/// The address of [`Veth::far`].
pub(crate) const FAR: &str = "198.51.100.2";

/// Clients run in `near`, servers in `far`.
pub(crate) struct Veth {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
}

impl Veth {
    pub(crate) fn new() -> Result<Veth> {
        let near = Namespace::new()?;
        let far = Namespace::new()?;
        near.ip(&format!("link add v0 type veth peer name v1 netns {}", far.name()))?;
        near.ip(&format!("addr add {NEAR}/24 dev v0"))?;
        far.ip(&format!("addr add {FAR}/24 dev v1"))?;
        near.ip("link set v0 up")?;
        far.ip("link set v1 up")?;
        Ok(Veth { near, far })
    }
}
