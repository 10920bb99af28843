//! Project automation.
mod tidy;
fn main() -> anyhow::Result<()> {
    tidy::run(std::path::Path::new("."))
}
