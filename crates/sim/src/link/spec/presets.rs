//! Links by name.

/// A link of which users have a picture, in both directions.
#[derive(Debug, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The direction from the user to the network.
    pub up: &'static str,
    /// The direction from the network to the user.
    pub down: &'static str,
}

/// The names that may begin a specification.
///
/// The rates and delays of `3g`, `lte` and `dsl` are those of the profiles of these names in
/// WebPageTest, with half of the round trip in each direction, and the buffer of `3g` and `dsl` is
/// about 50 packets. The delay of `satellite` is that of a geostationary orbit with its ground
/// stations. All other values are chosen.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "3g",
        up: "rate=768kbit,delay=150ms,buffer=75kB",
        down: "rate=1600kbit,delay=150ms,buffer=75kB",
    },
    Preset {
        name: "lte",
        up: "rate=12mbit,delay=35ms,buffer=1bdp",
        down: "rate=12mbit,delay=35ms,buffer=1bdp",
    },
    Preset {
        name: "dsl",
        up: "rate=384kbit,delay=25ms,buffer=75kB",
        down: "rate=1500kbit,delay=25ms,buffer=75kB",
    },
    Preset {
        name: "satellite",
        up: "rate=3mbit,delay=300ms,jitter=5ms,loss=0.1%,buffer=1bdp",
        down: "rate=25mbit,delay=300ms,jitter=5ms,loss=0.1%,buffer=1bdp",
    },
    Preset {
        name: "transatlantic",
        up: "rate=100mbit,delay=40ms,buffer=1bdp",
        down: "rate=100mbit,delay=40ms,buffer=1bdp",
    },
    Preset {
        name: "bad-wifi",
        up: "rate=10mbit,delay=3ms,jitter=20ms,loss=3%,burst=3,buffer=250kB",
        down: "rate=20mbit,delay=3ms,jitter=20ms,loss=3%,burst=3,buffer=250kB",
    },
    Preset { name: "perfect", up: "", down: "" },
];

/// The preset of a name.
pub(super) fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The names of all presets, for messages.
pub(super) fn names() -> String {
    PRESETS.map(|preset| preset.name).join(", ")
}
