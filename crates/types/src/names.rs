//! Names that mean somebody already: bearers that no token may be made for, and accounts that nobody is paid to.

/// Tenant of work that nobody has to prove a name for.
pub const ANONYMOUS: &str = "anonymous";
/// Name of the operator of a node, who bears no token.
pub const OPERATOR: &str = "operator";
/// Tenant under which everything beyond the bounds of the usage meter is counted.
pub const OTHER_TENANTS: &str = "(other)";
/// Beginning of the accounts of pots that payouts come from.
pub const POT_PREFIX: &str = "epoch/";

/// Whether a name stands for somebody whom no token names: whoever was given it would have the usage of others.
pub fn is_reserved(name: &str) -> bool {
    [ANONYMOUS, OPERATOR, OTHER_TENANTS].contains(&name)
}

/// Whether a name is, or begins like, the account of a pot: nobody is paid under it.
pub fn is_pot(name: &str) -> bool {
    name.starts_with(POT_PREFIX)
}
