//! `Slashes`: how routes match characters that some servers read as a slash.

/// How routes match `//`, `%2F`, and characters that some servers read as a slash; see [`Router::slashes`](crate::Router::slashes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Slashes {
    /// As `Keep`, and a request that a gateway would pass on is matched as `Merge` has it: its
    /// upstream may merge and decode slashes, and must not find the path of another route then.
    #[default]
    MergeForProxies,
    /// Empty segments are dropped, `%2F`, `\\` and `%5C` are slashes, and parameters of a segment, which begin with `;`,
    /// are left out.
    Merge,
    /// Slashes are matched as they were sent, and `%2F` is a part of its segment. A proxy's upstream that reads paths in
    /// another way is not protected by the rules of its routes.
    Keep,
    /// A path with `//`, `%2F`, `\\` or `%5C` is answered with 400. A request that a gateway would pass on is matched without
    /// the parameters of segments.
    Refuse,
}

impl Slashes {
    /// Whether a request that a gateway would pass on is matched in its folded form, since its upstream may read it so.
    pub(crate) const fn folds_for_proxies(self) -> bool {
        matches!(self, Self::MergeForProxies | Self::Refuse)
    }
}
