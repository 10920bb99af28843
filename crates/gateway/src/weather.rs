//! Weather: links with rate, delay and loss between the command and the gateway's stack.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use anyhow::Result;
use plimsoll::device::Device;
use plimsoll::now;
pub(crate) use plimsoll_sim::link::Weather;
use plimsoll_sim::link::spec::{self, Direction, LinkSpec};
use plimsoll_sim::link::{self, Link, LinkConfig, LinkStats};

/// The seed unless one is given.
const SEED: u64 = 1;

/// The links that were asked for.
#[derive(Clone, Debug)]
pub struct LinkRequest {
    /// The text of both, up (from the command to the network) first.
    specs: [LinkSpec; 2],
    configs: [LinkConfig; 2],
}

impl LinkRequest {
    /// Links as in `both`, with the differences of each direction, up first. `mtu` is that of the
    /// command's interface.
    ///
    /// # Errors
    /// Says in which direction a name or value contradicts another.
    pub fn new(
        both: &LinkSpec,
        differences: &[LinkSpec; 2],
        mtu: u16,
    ) -> Result<LinkRequest, (Direction, String)> {
        let specs = differences.each_ref().map(|own| own.over(both));
        let [up, down] = &specs;
        let configs = spec::pair([up, down], &LinkConfig::default().mtu(mtu))?;
        Ok(LinkRequest { specs, configs })
    }

    /// Puts the links between the interface and its stack.
    pub(crate) fn wrap(&self, device: Device) -> Result<(Device, Weather)> {
        let [up, down] = &self.specs;
        let seed = up.seed().unwrap_or(SEED);
        let back = down.seed().unwrap_or(seed).wrapping_add(1);
        let [first, second] = self.configs.clone();
        let links = [Link::new(first, seed)?, Link::new(second, back)?];
        Ok(link::wrap(device, links))
    }
}

/// Reads and changes the links of a running gateway.
#[derive(Clone, Debug)]
pub struct WeatherControl {
    weather: Weather,
    specs: Arc<Mutex<[LinkSpec; 2]>>,
    mtu: u16,
    /// Wakes the loop, whose sleep was planned for the links before.
    waker: Waker,
}

impl WeatherControl {
    pub(crate) fn new(
        weather: Weather,
        request: &LinkRequest,
        mtu: u16,
        waker: Waker,
    ) -> WeatherControl {
        let specs = Arc::new(Mutex::new(request.specs.clone()));
        WeatherControl { weather, specs, mtu, waker }
    }

    /// Changes the names that `both` gives in both directions, then those of each direction, up
    /// first. A preset leaves nothing of the link before.
    ///
    /// # Errors
    /// Names the value that makes no sense or cannot change; then nothing has changed.
    pub fn change(&self, both: &LinkSpec, differences: &[LinkSpec; 2]) -> Result<(), String> {
        let mut specs = self.specs.lock().unwrap_or_else(PoisonError::into_inner);
        for spec in [both].into_iter().chain(differences) {
            check_change(spec)?;
        }
        let [up, down] = &*specs;
        let [own_up, own_down] = differences;
        let changed = [(own_up, up), (own_down, down)].map(|(own, was)| own.over(both).over(was));
        let [up, down] = &changed;
        let configs = spec::pair([up, down], &LinkConfig::default().mtu(self.mtu))
            .map_err(|(_, error)| error)?;
        self.weather.reconfigure(now(), configs).map_err(|error| error.to_string())?;
        *specs = changed;
        self.waker.wake_by_ref();
        Ok(())
    }

    /// The links as they were written, with their counts, up first.
    pub fn links(&self) -> [(String, LinkStats); 2] {
        let specs = self.specs.lock().unwrap_or_else(PoisonError::into_inner);
        let [up, down] = specs.each_ref().map(LinkSpec::to_string);
        let [first, second] = self.weather.stats();
        [(up, first), (down, second)]
    }
}

/// Whether a running link can change in this way.
///
/// # Errors
/// Names the item that is only for the start.
pub fn check_change(spec: &LinkSpec) -> Result<(), String> {
    for name in ["trace", "seed"] {
        if spec.get(name).is_some() {
            return Err(format!(
                "a running link cannot change its {name}; give it to 'plimsoll run'"
            ));
        }
    }
    Ok(())
}
