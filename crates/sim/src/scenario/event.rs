//! Events: what happens to links and hosts, and when.

use core::fmt;

use plimsoll_tcp::Duration;
use serde::de::value::EnumAccessDeserializer;
use serde::de::{
    DeserializeSeed, EnumAccess, Error, IntoDeserializer, MapAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::units;

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// When, from the beginning of the run. Not behind
    /// [`faults_until`](crate::Scenario::faults_until).
    #[serde(with = "units::time")]
    pub at: Duration,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

impl Event {
    /// `what` happens at `at`.
    pub fn new(at: Duration, what: Happening) -> Event {
        Event { at, what }
    }
}

/// What may happen. Links are told by their number, from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Happening {
    /// Nothing passes a link in one direction, or in both.
    Partition {
        /// The link.
        link: usize,
        /// Which way is cut.
        way: Way,
        /// For how long, above 0; at `faults_until` it ends in any case.
        #[serde(rename = "for", with = "units::time")]
        time: Duration,
    },
    /// The MTU of both directions changes.
    Mtu {
        /// The link.
        link: usize,
        /// In bytes, 576 to 65535.
        mtu: u16,
    },
    /// The rate of both directions changes.
    Rate {
        /// The link.
        link: usize,
        /// To what, in bits per second; `None` is no limit.
        #[serde(with = "units::rate")]
        rate: Option<u64>,
    },
    /// A host does nothing: its process is stopped.
    Stall {
        /// The host.
        host: String,
        /// For how long, above 0; at `faults_until` it ends in any case.
        #[serde(rename = "for", with = "units::time")]
        time: Duration,
    },
    /// A host's clock steps forward, as after the machine has slept.
    Clock {
        /// The host.
        host: String,
        /// By how much: above 0, and not more than `limit`.
        #[serde(with = "units::time")]
        by: Duration,
    },
    /// A host loses all it knows, sends nothing, and is back later with a new stack.
    Crash {
        /// The host.
        host: String,
        /// For how long it is away, above 0; at `faults_until` it is back in any case.
        #[serde(rename = "for", with = "units::time")]
        time: Duration,
    },
}

impl Happening {
    /// The key of the event that says so.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Happening::Partition { .. } => "partition",
            Happening::Mtu { .. } => "mtu",
            Happening::Rate { .. } => "rate",
            Happening::Stall { .. } => "stall",
            Happening::Clock { .. } => "clock",
            Happening::Crash { .. } => "crash",
        }
    }
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the first to the second of its ends.
    Forward,
    /// The other way.
    Backward,
    /// Both.
    Both,
}

/// The keys of an event.
const KEYS: [&str; 7] = ["at", "partition", "mtu", "rate", "stall", "clock", "crash"];

/// A key of an event that is known. Serde's own `flatten` would forget where the keys stand, and
/// take any.
struct EventKey(&'static str);

impl<'de> Deserialize<'de> for EventKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<EventKey, D::Error> {
        let name = String::deserialize(from)?;
        match KEYS.iter().find(|&&key| key == name) {
            Some(key) => Ok(EventKey(key)),
            None => Err(D::Error::unknown_field(&name, &KEYS)),
        }
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Event, D::Error> {
        from.deserialize_map(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event, as in { at = \"2s\", stall = { host = \"a\", for = \"1s\" } }")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Event, M::Error> {
        /// For `#[serde(with)]`.
        #[derive(Deserialize)]
        struct Time(#[serde(with = "units::time")] Duration);
        let (mut at, mut what) = (None, None::<Happening>);
        while let Some(EventKey(key)) = map.next_key()? {
            if key == "at" {
                at = Some(map.next_value::<Time>()?.0);
            } else if let Some(what) = &what {
                let first = what.key();
                let reason = format!("an event is {first} or {key}; make two events of them");
                return Err(M::Error::custom(reason));
            } else {
                let entry = Entry { key, map: &mut map };
                what = Some(Happening::deserialize(EnumAccessDeserializer::new(entry))?);
            }
        }
        let at = at.ok_or_else(|| M::Error::custom("it has no time; write at = \"2s\""))?;
        let nothing =
            || M::Error::custom(format!("nothing happens; write {}", KEYS[1..].join(" or ")));
        Ok(Event { at, what: what.ok_or_else(nothing)? })
    }
}

/// One entry of a map, as the variant of an enum.
struct Entry<'m, M> {
    key: &'static str,
    map: &'m mut M,
}

impl<'de, M: MapAccess<'de>> EnumAccess<'de> for Entry<'_, M> {
    type Error = M::Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), M::Error> {
        let variant = seed.deserialize(self.key.into_deserializer())?;
        Ok((variant, self))
    }
}

impl<'de, M: MapAccess<'de>> VariantAccess<'de> for Entry<'_, M> {
    type Error = M::Error;

    fn unit_variant(self) -> Result<(), M::Error> {
        self.map.next_value()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, M::Error> {
        self.map.next_value_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, M::Error> {
        self.map.next_value_seed(Fields { names: &[], visitor })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, M::Error> {
        self.map.next_value_seed(Fields { names, visitor })
    }
}

/// The fields of a variant.
struct Fields<V> {
    names: &'static [&'static str],
    visitor: V,
}

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Fields<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        from.deserialize_struct("event", self.names, self.visitor)
    }
}
