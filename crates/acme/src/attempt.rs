//! `Attempt`: one attempt to get a certificate, from the account to the checked chain.
//!
//! It begins where an earlier attempt has ended: the account and the order are in the store. The order's key is there
//! before the authority knows of it, and stays until the certificate is.

use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeStatus, ChallengeType,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tidegate_engine::{blocking, task};

use crate::chain::IssuedChain;
use crate::challenges::{Answering, Challenges, is_token};
use crate::dns::on_own_thread;
use crate::error::{InvalidChain, IssueError};
use crate::http_client::AuthorityClient;
use crate::records::{Records, SavedOrder};
use crate::settings::{ChallengeKind, Settings};

/// The parts of an attempt.
pub(crate) struct Attempt<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) records: &'a Records,
    pub(crate) challenges: &'a Challenges,
    pub(crate) client: AuthorityClient,
    pub(crate) kind: ChallengeKind,
    /// The certificate that is replaced, for the authority (RFC 9773 §5).
    pub(crate) replaces: Option<CertificateIdentifier<'static>>,
    /// The key and the chain in use, as PEM.
    pub(crate) current: Option<Vec<u8>>,
}

/// A checked certificate.
pub(crate) struct Issued {
    /// The key and the chain as one PEM text.
    pub(crate) text: Vec<u8>,
    pub(crate) chain: IssuedChain,
}

impl Attempt<'_> {
    /// Gets a certificate, and checks it. It is in the store then, and the order is not.
    pub(crate) async fn run(&self) -> Result<Issued, IssueError> {
        let account = self.account().await?;
        let (mut order, saved) = self.order(&account).await?;
        let issued = match self.complete(&mut order, &saved).await {
            Ok(issued) => issued,
            Err(error) => {
                // A failed order never recovers, and a refused chain stays the same (RFC 8555 §7.1.6).
                let is_final = matches!(error, IssueError::Chain(_) | IssueError::Refused(_));
                let is_over = is_final || order.state().status == OrderStatus::Invalid;
                if is_over {
                    self.records.remove_order().await?;
                }
                return Err(error);
            }
        };
        self.records.set_certificate(issued.text.clone()).await?;
        self.records.remove_order().await?;
        Ok(issued)
    }

    /// The account of the store, or a new one. An account that the authority does not know any more is replaced.
    pub(crate) async fn account(&self) -> Result<Account, IssueError> {
        let builder = || Account::builder_with_http(Box::new(self.client.clone()));
        if let Some(credentials) = self.records.account().await? {
            return Ok(builder().from_credentials(credentials).await?);
        }
        let contact: Vec<_> = self.settings.contacts.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self.settings.external_account.as_ref();
        let external = external.map(|(id, key)| ExternalAccountKey::new(id.clone(), key));
        let created = builder().create(&new, self.settings.directory.clone(), external.as_ref()).await;
        let (account, credentials) = created?;
        self.records.set_account(&credentials).await?;
        tracing::info!(subsystem = "acme", directory = %self.settings.directory, "account created");
        Ok(account)
    }

    /// The order of an earlier attempt, or a new one.
    async fn order(&self, account: &Account) -> Result<(Order, SavedOrder), IssueError> {
        if let Some(saved) = self.records.order().await? {
            // A certificate of this order is in use already: the process ended before it removed the record.
            let is_done = self.current.as_ref().is_some_and(|text| text.starts_with(saved.key.as_bytes()));
            match (!is_done).then_some(account.order(saved.url.clone())) {
                None => {}
                Some(found) => match found.await {
                    Ok(mut order) => {
                        if order.state().status != OrderStatus::Invalid {
                            tracing::info!(subsystem = "acme", order = saved.url, "an earlier order continues");
                            return Ok((order, saved));
                        }
                    }
                    Err(instant_acme::Error::Api(problem)) if is_gone(&problem) => {}
                    Err(error) => return Err(error.into()),
                },
            }
            self.records.remove_order().await?;
        }
        let key = blocking(|| KeyPair::generate().map(|key| key.serialize_pem())).await?;
        let key = key.map_err(|_| IssueError::Crypto)?;
        let order = self.new_order(account).await?;
        let saved = SavedOrder { url: order.url().to_owned(), key };
        self.records.set_order(&saved).await?;
        Ok((order, saved))
    }

    async fn new_order(&self, account: &Account) -> Result<Order, IssueError> {
        let identifier = |name: &String| match name.parse() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(name.clone()),
        };
        let identifiers: Vec<_> = self.settings.names.iter().map(identifier).collect();
        if let Some(replaces) = &self.replaces {
            match account.new_order(&NewOrder::new(&identifiers).replaces(replaces.clone())).await {
                Ok(order) => return Ok(order),
                // Another order has replaced the certificate, or the authority knows nothing of renewals.
                Err(instant_acme::Error::Api(problem))
                    if matches!(IssueError::of_problem(&problem), IssueError::Refused(_)) => {}
                Err(instant_acme::Error::Unsupported(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(account.new_order(&NewOrder::new(&identifiers)).await?)
    }

    /// Brings an order to its certificate, from whichever state it is in.
    async fn complete(&self, order: &mut Order, saved: &SavedOrder) -> Result<Issued, IssueError> {
        let mut answers = Vec::new();
        let mut is_finalized = false;
        let mut poll = PollDelay::new(self.settings);
        loop {
            match order.state().status {
                OrderStatus::Pending if answers.is_empty() => answers = self.authorize(order).await?,
                OrderStatus::Ready if !is_finalized => {
                    let csr = self.request(saved.key.clone()).await?;
                    order.finalize_csr(&csr).await?;
                    is_finalized = true;
                    continue;
                }
                OrderStatus::Pending | OrderStatus::Ready | OrderStatus::Processing => {}
                OrderStatus::Valid => return self.download(order, saved).await,
                OrderStatus::Invalid => return Err(failure(order).await),
            }
            task::sleep(poll.next(self.client.retry_after())).await;
            order.refresh().await?;
        }
    }

    /// Answers the challenge of each name that is not validated yet, as long as the result is kept.
    async fn authorize(&self, order: &mut Order) -> Result<Vec<Answering>, IssueError> {
        if order.state().authorizations.len() > self.settings.names.len() {
            return Err(IssueError::malformed("the order has more authorizations than names"));
        }
        let mut answers = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                // A validation has failed already: the order becomes invalid, and has the cause.
                _ if !answers.is_empty() => break,
                _ => return Err(IssueError::Refused("an authorization is no longer pending".into())),
            }
            let kind = match self.kind {
                ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
                ChallengeKind::Http01 => ChallengeType::Http01,
                ChallengeKind::Dns01 => ChallengeType::Dns01,
            };
            let mut challenge = authorization.challenge(kind).ok_or(IssueError::NoChallenge)?;
            answers.push(self.answer(&challenge).await?);
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
        }
        Ok(answers)
    }

    async fn answer(&self, challenge: &ChallengeHandle<'_>) -> Result<Answering, IssueError> {
        let name = challenge.identifier().to_string().to_ascii_lowercase();
        if !self.settings.names.contains(&name) {
            return Err(IssueError::malformed("an authorization is for a name that the order does not have"));
        }
        if !is_token(&challenge.token) {
            return Err(IssueError::malformed("the token of a challenge has other letters than base64url has"));
        }
        let authorization = challenge.key_authorization();
        match self.kind {
            ChallengeKind::Http01 => Ok(self.challenges.answer_http(&challenge.token, authorization.as_str())),
            ChallengeKind::Dns01 => {
                let (challenges, value) = (self.challenges.clone(), authorization.dns_value());
                let provider = self.settings.dns.clone().ok_or(IssueError::NoChallenge)?;
                on_own_thread(move || challenges.answer_dns(provider, &name, value)).await.map_err(IssueError::Dns)?
            }
            ChallengeKind::TlsAlpn01 => {
                let (challenges, digest) = (self.challenges.clone(), authorization.digest().as_ref().to_vec());
                blocking(move || challenges.answer_tls(&name, &digest)).await?
            }
        }
    }

    /// The request for the certificate (CSR), DER.
    async fn request(&self, key: String) -> Result<Vec<u8>, IssueError> {
        let names = self.settings.names.clone();
        let make = move || -> Result<Vec<u8>, rcgen::Error> {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name = DistinguishedName::new();
            Ok(params.serialize_request(&KeyPair::from_pem(&key)?)?.der().to_vec())
        };
        blocking(make).await?.map_err(|_| IssueError::Crypto)
    }

    async fn download(&self, order: &mut Order, saved: &SavedOrder) -> Result<Issued, IssueError> {
        let chain = order.certificate().await?.ok_or_else(|| IssueError::malformed("there is no certificate"))?;
        let text = format!("{}\n{chain}", saved.key.trim_end()).into_bytes();
        let (provider, names) = (self.settings.provider.clone(), self.settings.names.clone());
        let (roots, current) = (self.settings.issuers.clone(), self.current.clone());
        let check = move || -> Result<Issued, InvalidChain> {
            let chain = IssuedChain::parse(&text)?;
            chain.check_identity(&provider, &text, &names)?;
            chain.check_signatures(&provider, roots.as_ref(), SystemTime::now())?;
            let current = current.and_then(|text| IssuedChain::parse(&text).ok());
            if current.is_some_and(|current| chain.lifetime.not_after <= current.lifetime.not_after) {
                return Err(InvalidChain::NotNewer);
            }
            Ok(Issued { text, chain })
        };
        Ok(blocking(check).await??)
    }
}

/// Why an order is invalid: its own error, or that of the first challenge that failed.
async fn failure(order: &mut Order) -> IssueError {
    let own = order.state().error.as_ref().map(IssueError::of_problem);
    if let Some(limited @ IssueError::RateLimited(_)) = own {
        return limited;
    }
    // The error of the order says less than that of its challenge.
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { break };
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            return IssueError::of_problem(problem);
        }
    }
    own.unwrap_or_else(|| IssueError::Refused("the order is invalid".into()))
}

/// Whether the authority does not know an order, or not as one of this account.
fn is_gone(problem: &Problem) -> bool {
    let is_refused = matches!(IssueError::of_problem(problem), IssueError::Refused(_));
    is_refused && matches!(problem.status, Some(400 | 401 | 403 | 404))
}

/// The waits for an order: each is half as long again, unless the authority names one.
struct PollDelay {
    next: Duration,
    min: Duration,
    max: Duration,
}

impl PollDelay {
    fn new(settings: &Settings) -> Self {
        let (min, max) = (settings.limits.poll_min, settings.limits.poll_max);
        Self { next: min, min, max: max.max(min) }
    }

    fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let own = self.next;
        self.next = (own + own / 2).min(self.max);
        // At least our own, so that `Retry-After: 0` is no invitation to ask without pause.
        retry_after.map_or(own, |wait| wait.clamp(self.min, self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_an_order_grow_and_the_authority_may_name_one_within_bounds() {
        let second = Duration::from_secs(1);
        let mut delay = PollDelay { next: second, min: second, max: 3 * second };
        assert_eq!(delay.next(None), second);
        assert_eq!(delay.next(None), second * 3 / 2);
        assert_eq!(delay.next(Some(Duration::ZERO)), second);
        assert_eq!(delay.next(Some(100 * second)), 3 * second);
        assert_eq!(delay.next(None), 3 * second);
    }
}
