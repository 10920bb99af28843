//! `plimsoll top` in a terminal.

use anyhow::{Result, ensure};

use crate::harness::behind::{LATER, PYTHON, World};
use crate::harness::process::Process;
use crate::harness::runner::Case;

pub(crate) const CASES: &[Case] =
    &[Case::light("run::top_shows_a_transfer_and_restores_the_terminal", transfer)];

/// Sends 10 kB ten times a second, for a minute.
const SERVER: &str = "import socket, time
s = socket.create_server(('', 9)); print('ready', flush=True)
c, _ = s.accept()
try:
    for _ in range(600): c.sendall(bytes(10000)); time.sleep(0.1)
except OSError: pass";

const CLIENT: &str = "import socket
c = socket.create_connection(('files.example', 9)); print('ready', flush=True)
while c.recv(65536): pass";

fn transfer() -> Result<()> {
    let world = World::new()?;
    let _names = world.name_server()?;
    let _server = world.far(&[PYTHON, "-c", SERVER], "ready")?;
    let inside = world.started(&[], &[PYTHON, "-c", CLIENT])?;
    let (pid, program) = (inside.id().to_string(), world.path("plimsoll"));
    let script = world.write("top.py", include_str!("top.py"))?;
    let words = [PYTHON, "-B", &script, &program, &pid, "files.example:9"];
    Process::spawn("top", &mut world.directly(&words))?.success(LATER)?;
    let ended = inside.wait(LATER)?;
    ensure!(ended.status.code() == Some(143), "{:?}: {}", ended.status, ended.said);
    let piped = world.ask(&["top"])?;
    let is_refused = piped.status.code() == Some(1) && piped.said.contains("plimsoll ss -i");
    ensure!(is_refused, "{}", piped.said);
    Ok(())
}
