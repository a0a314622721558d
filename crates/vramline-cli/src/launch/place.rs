//! The folder of the recording: the requested name, or a name made from the script and the time. If it cannot be written, the
//! recording goes to the temporary folder. A run that belongs to a job with several runs joins the recording that another of them began.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use vramline::recording::folder::{self, RunPlace};
use vramline::recording::joining::{self, Claimed};
use vramline::recording::manifest::RunManifest;
use vramline::units::Nanos;

use crate::launch::say;

/// Creates the folder or joins it, and writes the manifest. `is_named` tells that the user named the job. Prints a line and returns
/// `None` if no place can be written.
pub(crate) fn make(wanted: &Path, manifest: &RunManifest, is_named: bool) -> Option<RunPlace> {
    let error = match filled(wanted, manifest, is_named) {
        Ok(place) => return Some(place),
        Err(error) => error,
    };
    let temporary = std::env::temp_dir().join(wanted.file_name().unwrap_or("run.vram".as_ref()));
    match filled(&temporary, manifest, is_named) {
        Ok(place) => {
            say(format_args!(
                "cannot write '{}' ({error}); recording to '{}' instead",
                wanted.display(),
                place.folder.display()
            ));
            if joining::may_join(&manifest.identity, is_named) {
                say("`vramline gather` joins the recordings of several hosts");
            }
            Some(place)
        }
        Err(_) => {
            say(format_args!("cannot write '{}' ({error}); running without a recording", wanted.display()));
            None
        }
    }
}

fn filled(wanted: &Path, manifest: &RunManifest, is_named: bool) -> io::Result<RunPlace> {
    let Claimed { place, passed } = joining::claim(wanted, manifest, is_named)?;
    if let Some(passed) = passed {
        say(format_args!(
            "'{}' {passed}; recording to '{}' instead",
            wanted.display(),
            place.folder.display()
        ));
    }
    Ok(place)
}

/// Removes the recording of a job that could not be started.
pub(crate) fn unmake(place: &RunPlace) {
    // Only what was written here: a folder with other files stays.
    let _ = std::fs::remove_file(place.manifest());
    let _ = std::fs::remove_dir(&place.folder);
}

/// `train-20261115-071010.vram` for `python train.py` at that time (UTC). Runs that may join each other have the name of their job
/// instead of the time: `train-4711.0.vram`.
pub(crate) fn default_name(command: &[OsString], manifest: &RunManifest, is_named: bool) -> PathBuf {
    let job = manifest.identity.job.as_deref().filter(|_| joining::may_join(&manifest.identity, is_named));
    let ending =
        job.map_or_else(|| date_and_time(manifest.clocks.begin.realtime_ns), |job| plain(job.chars()));
    PathBuf::from(format!("{}-{ending}{}", subject(command), folder::SUFFIX))
}

/// The name of the script, else of the module, else of the program.
fn subject(command: &[OsString]) -> String {
    let words: Vec<&str> = command.iter().filter_map(|word| word.to_str()).collect();
    let script = words.iter().find(|word| word.ends_with(".py") && !word.contains(char::is_whitespace));
    let module = || {
        let at = words.iter().position(|&word| word == "-m")?;
        words.get(at + 1)?.rsplit('.').next()
    };
    let stem = |word: &&str| Path::new(word).file_stem().and_then(|stem| stem.to_str().map(str::to_owned));
    let name = script
        .and_then(stem)
        .or_else(|| module().map(str::to_owned))
        .or_else(|| words.first().and_then(stem))
        .unwrap_or_default();
    let name = plain(name.trim_start_matches(['.', '-']).chars());
    if name.is_empty() { "run".to_owned() } else { name }
}

/// What fits the name of a folder.
fn plain(text: impl Iterator<Item = char>) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.take(64).map(|c| if fits(c) { c } else { '_' }).collect()
}

/// `20261115-071010`. UTC, because a local time needs tables of zones and repeats an hour each autumn.
fn date_and_time(now: Nanos) -> String {
    let seconds = now.0.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years that begin in March have their leap day at the end, and eras of 400 years all have the same length.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_script() {
        let name = |words: &[&str]| subject(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(name(&["python", "src/train.py", "--epochs", "3"]), "train");
        assert_eq!(name(&["torchrun", "--nproc", "2", "train.v2.py"]), "train.v2");
        assert_eq!(name(&["python3", "-u", "-m", "my.models.fit", "-m", "x"]), "fit");
        assert_eq!(name(&["/usr/bin/sleep", "5"]), "sleep");
        assert_eq!(name(&["bash", "-c", "python train.py"]), "bash");
        assert_eq!(name(&["python", "-c", "print('a.py')"]), "python");
        assert_eq!(name(&["..py"]), "run");
        assert_eq!(name(&["--/.py", "ü ü"]), "py");
        assert_eq!(name(&["ü ü"]), "___");
        assert_eq!(name(&[]), "run");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = |seconds: i64| date_and_time(Nanos(seconds * 1_000_000_000));
        assert_eq!(shown(0), "19700101-000000");
        assert_eq!(shown(951_782_399), "20000228-235959");
        assert_eq!(shown(951_782_400), "20000229-000000");
        assert_eq!(shown(1_794_726_610), "20261115-071010");
        assert_eq!(shown(-1), "19691231-235959");
        assert_eq!(shown(4_107_542_400), "21000301-000000");
    }
}
