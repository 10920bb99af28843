//! Which congestion control algorithms there are, and their names.

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CongestionAlgorithm {
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 3 (draft-ietf-ccwg-bbr). Always paced.
    Bbr,
    /// DCTCP (RFC 8257), for networks whose routers mark early and whose hosts all use DCTCP.
    Dctcp,
}

impl CongestionAlgorithm {
    /// All algorithms.
    pub const ALL: [CongestionAlgorithm; 4] = [
        CongestionAlgorithm::NewReno,
        CongestionAlgorithm::Cubic,
        CongestionAlgorithm::Bbr,
        CongestionAlgorithm::Dctcp,
    ];

    /// Linux's name: `reno`, `cubic`, `bbr` or `dctcp`. (The `bbr` of mainline Linux is version 1.)
    pub const fn name(self) -> &'static str {
        match self {
            CongestionAlgorithm::NewReno => "reno",
            CongestionAlgorithm::Cubic => "cubic",
            CongestionAlgorithm::Bbr => "bbr",
            CongestionAlgorithm::Dctcp => "dctcp",
        }
    }

    /// The algorithm with Linux's name `name`.
    pub fn from_name(name: &str) -> Option<CongestionAlgorithm> {
        CongestionAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}
