//! `orbit openapi`

use crate::failure::Failure;
use crate::output;

/// Prints the description of this version's API, as a server gives it at `/v1/openapi.json`.
pub fn run() -> Result<(), Failure> {
    output::print(orbit_io::http::openapi::text())
}
