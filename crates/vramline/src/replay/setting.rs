//! The settings of a what-if: how they are parsed, and which allocator supports which.

use std::str::FromStr;

use super::Rules;
use crate::allocator::torch_caching;
use crate::units::Bytes;

/// The step at which a what-if restarts the program with an empty pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The last step.
    LastStep,
    /// The step of this number.
    Step(i64),
}

/// PyTorch's `max_split_size`: blocks of this size or larger are not split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSize {
    /// All blocks are split.
    Off,
    /// Blocks of this size or larger are not split.
    From(Bytes),
}

/// The settings of a what-if, parsed from the argument of `--what-if`:
///
/// ```
/// let setting: vramline::Setting = "limit=8GiB,expandable=on".parse()?;
/// assert_eq!((setting.limit, setting.expandable), (Some(vramline::Bytes(8 << 30)), Some(true)));
/// # Ok::<(), vramline::NotASetting>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// The text it was parsed from.
    pub text: String,
    /// The limit of the pool.
    pub limit: Option<Bytes>,
    /// Whether the pool grows as needed. TensorFlow and JAX only.
    pub growth: Option<bool>,
    /// Whether idle regions are returned to the driver; for PyTorch see `gc_threshold`.
    pub gc: Option<bool>,
    /// The largest rounding of a block, as a share of the limit. TensorFlow and JAX only.
    pub fragmentation: Option<f64>,
    /// The share of the limit above which idle segments are returned to the driver. PyTorch only.
    pub gc_threshold: Option<f64>,
    /// Whether segments grow in place. PyTorch only.
    pub expandable: Option<bool>,
    /// The size from which blocks are not split. PyTorch only.
    pub split_size: Option<SplitSize>,
    /// How sizes are rounded, in PyTorch's notation. PyTorch only.
    pub roundup: Option<String>,
    /// Whether CUDA's asynchronous pool serves the requests (`cudaMallocAsync`).
    pub stream_ordered: bool,
    /// Restarts at a step: what is in use at the step goes into an empty pool, and the later steps follow.
    pub restart: Option<Restart>,
}

/// The error of a text that is not a [`Setting`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{part}' is not a setting: {why}")]
pub struct NotASetting {
    part: String,
    why: String,
}

impl NotASetting {
    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        "give settings joined by commas. All: limit=8GiB, restart=on|STEP, allocator=cuda_malloc_async. TensorFlow and JAX: growth=on|off, \
         gc=on|off, fragmentation=0.05. PyTorch: expandable=on|off, split_size=128MiB|off, roundup=8, gc=0.8|off"
    }
}

/// The error of a [`Setting`] that the pool's allocator does not support.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{setting}' does not apply to {pool}: {why}")]
pub struct NotForThis {
    setting: String,
    pool: String,
    why: &'static str,
    hint: &'static str,
}

impl NotForThis {
    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

const FOR_BFC: &str =
    "this pool supports limit, growth, gc=on|off, fragmentation, restart and allocator=cuda_malloc_async";
const FOR_TORCH: &str = "this pool supports limit, expandable, split_size, roundup, gc=0.8|off, restart and allocator=cuda_malloc_async";

impl Rules {
    /// Checks that the allocator supports all of these settings. `limit` is the limit of the pool, if it is known.
    pub fn check(&self, setting: &Setting, pool: &str, limit: Option<Bytes>) -> Result<(), NotForThis> {
        let refused =
            |why, hint| Err(NotForThis { setting: setting.text.clone(), pool: pool.to_owned(), why, hint });
        let for_bfc = setting.growth.is_some() || setting.fragmentation.is_some();
        let for_torch = setting.expandable.is_some()
            || setting.split_size.is_some()
            || setting.roundup.is_some()
            || setting.gc_threshold.is_some();
        if setting.stream_ordered && (for_bfc || for_torch || setting.gc.is_some()) {
            let why = "CUDA's asynchronous pool does not support these settings";
            return refused(why, "combine allocator=cuda_malloc_async with limit and restart only");
        }
        match self {
            Rules::Bfc(_) if for_torch => refused("it is a setting of PyTorch's allocator", FOR_BFC),
            Rules::Torch(_) if for_bfc => {
                refused("it is a setting of TensorFlow's and JAX's allocator", FOR_TORCH)
            }
            Rules::Torch(_) if setting.gc == Some(true) => refused(
                "PyTorch returns idle segments above a share of the limit",
                "give that share, such as gc=0.8",
            ),
            Rules::Torch(_) if setting.gc_threshold.is_some() && setting.limit.or(limit).is_none() => {
                refused(
                    "gc is a share of the limit, and the trace does not contain a limit",
                    "add a limit: limit=8GiB,gc=0.8",
                )
            }
            _ => Ok(()),
        }
    }
}

impl Setting {
    /// The options of PyTorch's allocator with these settings.
    pub(super) fn torch_options(&self, options: torch_caching::Options) -> torch_caching::Options {
        let mut options = options;
        options.expandable = self.expandable.unwrap_or(options.expandable);
        match self.split_size {
            Some(SplitSize::Off) => options.max_split = None,
            Some(SplitSize::From(bytes)) => options.max_split = Some(bytes),
            None => {}
        }
        if let Some(share) = self.gc_threshold {
            options.garbage_collection_threshold = share;
        }
        if self.gc == Some(false) {
            options.garbage_collection_threshold = 0.0;
        }
        if let Some(made) = self.roundup.as_ref().and_then(|text| rounding(options, text)) {
            options = made;
        }
        options
    }
}

/// Options with this rounding; `None` if PyTorch would refuse it.
fn rounding(options: torch_caching::Options, text: &str) -> Option<torch_caching::Options> {
    options.configured(&format!("roundup_power2_divisions:{text}")).ok()
}

/// Splits at commas outside brackets.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let cut = move |symbol: char| {
        depth += i32::from(symbol == '[') - i32::from(symbol == ']');
        symbol == ',' && depth <= 0
    };
    text.split(cut).map(str::trim).filter(|part| !part.is_empty())
}

impl FromStr for Setting {
    type Err = NotASetting;

    fn from_str(text: &str) -> Result<Setting, NotASetting> {
        let mut setting = Setting { text: text.trim().to_owned(), ..Setting::default() };
        for part in parts(text) {
            let wrong = |why: &str| NotASetting { part: part.to_owned(), why: why.to_owned() };
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("expected key=value"))?;
            let switch = match value {
                "on" | "true" | "True" => Some(true),
                "off" | "false" | "False" => Some(false),
                _ => None,
            };
            let on_or_off = || switch.ok_or_else(|| wrong("expected on or off"));
            let size = || value.parse::<Bytes>().map_err(|_| wrong("expected a size such as 8GiB"));
            // PyTorch's own names work too.
            match key {
                "limit" => setting.limit = Some(size()?),
                "growth" => setting.growth = Some(on_or_off()?),
                "gc" | "garbage_collection_threshold" => match (switch, value.parse::<f64>()) {
                    (Some(on), _) => setting.gc = Some(on),
                    (None, Ok(share)) if share > 0.0 && share < 1.0 => setting.gc_threshold = Some(share),
                    _ => return Err(wrong("expected on, off, or a share between 0 and 1")),
                },
                "fragmentation" => {
                    let fraction: f64 =
                        value.parse().map_err(|_| wrong("expected a fraction such as 0.05"))?;
                    if !(0.0..=1.0).contains(&fraction) {
                        return Err(wrong("expected a fraction from 0 to 1"));
                    }
                    setting.fragmentation = Some(fraction);
                }
                "expandable" | "expandable_segments" => setting.expandable = Some(on_or_off()?),
                "split_size" | "max_split_size_mb" => {
                    let from = match (switch, value.parse::<u64>()) {
                        (Some(false), _) => SplitSize::Off,
                        (_, Ok(number)) if key == "max_split_size_mb" => {
                            SplitSize::From(Bytes(number.saturating_mul(1 << 20)))
                        }
                        _ => SplitSize::From(size()?),
                    };
                    let is_taken = |bytes: Bytes| (Bytes(20 << 20)..Bytes(1 << 56)).contains(&bytes);
                    if matches!(from, SplitSize::From(bytes) if !is_taken(bytes)) {
                        return Err(wrong("PyTorch requires at least 20 MiB"));
                    }
                    setting.split_size = Some(from);
                }
                "roundup" | "roundup_power2_divisions" => {
                    let text = if switch == Some(false) { "0" } else { value };
                    if rounding(torch_caching::Options::default(), text).is_none() {
                        return Err(wrong("expected a power of two, or a list such as [256:1,512:2,>:8]"));
                    }
                    setting.roundup = Some(text.to_owned());
                }
                "allocator" | "backend" => {
                    if !matches!(value, "cuda_malloc_async" | "cudaMallocAsync") {
                        return Err(wrong("expected cuda_malloc_async"));
                    }
                    setting.stream_ordered = true;
                }
                "restart" => {
                    setting.restart = match (switch, value.parse()) {
                        (Some(true), _) => Some(Restart::LastStep),
                        (Some(false), _) => None,
                        (None, Ok(step)) => Some(Restart::Step(step)),
                        (None, Err(_)) => return Err(wrong("expected on, off, or the number of a step")),
                    }
                }
                _ => return Err(wrong("unknown key")),
            }
        }
        Ok(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let setting: Setting = "limit=8GiB, growth=off,gc=on,fragmentation=0.05,restart=3".parse().unwrap();
        assert_eq!(setting.limit, Some(Bytes(8 << 30)));
        assert_eq!((setting.growth, setting.gc), (Some(false), Some(true)));
        assert_eq!((setting.fragmentation, setting.restart), (Some(0.05), Some(Restart::Step(3))));
        let setting: Setting = "expandable=on,split_size=64MiB,gc=0.8,roundup=[256:1,>:8]".parse().unwrap();
        assert_eq!((setting.expandable, setting.gc_threshold), (Some(true), Some(0.8)));
        assert_eq!(setting.split_size, Some(SplitSize::From(Bytes(64 << 20))));
        assert_eq!(setting.roundup.as_deref(), Some("[256:1,>:8]"));
        let named: Setting = "expandable_segments=True,max_split_size_mb=64".parse().unwrap();
        assert_eq!((named.expandable, named.split_size), (setting.expandable, setting.split_size));
        assert!("allocator=cuda_malloc_async".parse::<Setting>().unwrap().stream_ordered);
        let wrong = [
            "limit",
            "limit=much",
            "growth=maybe",
            "fragmentation=2",
            "colour=red",
            "restart=x",
            "gc=2",
            "split_size=1MiB",
            "roundup=3",
            "allocator=mine",
        ];
        for wrong in wrong {
            assert!(wrong.parse::<Setting>().is_err(), "{wrong}");
        }
    }
}
