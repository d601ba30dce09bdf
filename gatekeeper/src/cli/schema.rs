//! `gatekeeper schema`: prints the JSON Schema of policies or reports.

use super::args::{SchemaArgs, SchemaOf};
use super::write_out;

const POLICY: &str = include_str!("../../schemas/policy-schema.json");
const REPORT: &str = include_str!("../../schemas/report-schema.json");

pub fn main(args: &SchemaArgs) -> u8 {
    let text = match args.of {
        SchemaOf::Policy => POLICY,
        SchemaOf::Report => REPORT,
    };
    write_out(None, text.as_bytes())
}
