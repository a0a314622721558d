//! Redaction of the ranks of a job: the names of hosts, of the job, of pools and of what the ranks held. Figures stay.

use super::{HIDDEN, Placeholder, Redaction};
use crate::analysis::ranks::JobRanks;
use crate::analysis::ranks::summary::RankSummary;

impl Redaction {
    pub(super) fn ranks(&mut self, job: &mut JobRanks) {
        job.job = job.job.as_ref().map(|_| HIDDEN.to_owned());
        job.host = job.host.as_deref().map(|host| self.host(host));
        job.ranks.iter_mut().for_each(|rank| self.rank(rank));
    }

    fn rank(&mut self, rank: &mut RankSummary) {
        rank.host = self.host(&rank.host);
        // It tells one machine from another, like a name.
        rank.boot = rank.boot.as_deref().map(|boot| self.placeholder(Placeholder::Host, boot));
        self.identity(&mut rank.identity);
        rank.pool = rank.pool.as_deref().map(|pool| self.pool(pool));
        rank.device = rank.device.as_deref().map(|device| self.device(device));
        for part in rank.held.iter_mut().flatten().filter(|part| !part.owner.is_empty()) {
            part.owner = self.layer(&part.owner);
        }
    }
}
