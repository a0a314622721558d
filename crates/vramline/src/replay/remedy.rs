//! Finds settings with which failed requests would have fitted, by replaying each of them.

use super::refused::Refused;
use super::setting::{Setting, SplitSize};
use super::what_if::Answered;
use super::{PoolRun, Rules};
use crate::units::Bytes;

/// Settings under which everything fits.
#[derive(Clone, Debug)]
pub struct Remedies {
    /// Settings that work under the same limit.
    pub settings: Vec<Answered>,
    /// The smallest limit that is enough by itself, up to twice the pool.
    pub limit: Option<Answered>,
}

/// Searches for them. `refused` is a failed request that the trace does not show. `None` if the replay finds room for everything: then the
/// allocator's rules did not cause the failure.
#[must_use]
pub fn remedies(ran: &PoolRun, refused: Option<Refused>) -> Option<Remedies> {
    let with_refused = refused.map(|refused| refused.within(&ran.program));
    let program = with_refused.as_ref().unwrap_or(&ran.program);
    let questions = ran.questions(program);
    let fits = |setting: &Setting| questions.ask(setting, None).filter(|answer| answer.fits == Some(true));
    if fits(&Setting::default()).is_some() {
        return None;
    }
    let settings = candidates(&ran.rules).iter().filter_map(fits).collect();
    let most = ran.exact.pool + ran.exact.pool + refused.map(|refused| refused.bytes).unwrap_or_default();
    let limit = questions.smallest_limit(&Setting::default(), None, questions.load, most);
    Some(Remedies { settings, limit })
}

/// The settings that can be changed.
fn candidates(rules: &Rules) -> Vec<Setting> {
    let named = |text: &str| Setting { text: text.to_owned(), ..Setting::default() };
    let mut list = Vec::new();
    match rules {
        Rules::Bfc(preset) => {
            if preset.options.growth {
                list.push(Setting { growth: Some(false), ..named("growth=off") });
            }
            if !preset.options.garbage_collection {
                list.push(Setting { gc: Some(true), ..named("gc=on") });
            }
        }
        Rules::Torch(rules) => {
            if !rules.options.expandable {
                list.push(Setting { expandable: Some(true), ..named("expandable=on") });
            }
            if rules.options.max_split.is_some() {
                list.push(Setting { split_size: Some(SplitSize::Off), ..named("split_size=off") });
            } else {
                let size = SplitSize::From(Bytes(128 << 20));
                list.push(Setting { split_size: Some(size), ..named("split_size=128MiB") });
            }
        }
    }
    list
}
