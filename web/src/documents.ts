// The JSON documents, as Rust declares them. Written by a test: tests/it/document.rs of the core.

export interface AdviceView {
  text: string;
  bytes: number | null;
}

export interface AlarmView {
  run: string;
  pool: string;
  rank?: number;
  figure: "peak" | "ever" | "at-peak" | "in-use";
  base_bytes: number;
  bytes: number;
  more_bytes: number;
  text: string;
}

export interface BeforeView {
  at_begin_bytes: number;
  freed_bytes: number;
  freed_blocks: number;
}

export interface BridgeView {
  region: number;
  bytes: number;
  free_bytes: number;
  holes: number;
  live: ChunkView[];
}

export interface BufferView {
  bytes: number | null;
  low_bytes: number;
  high_bytes: number;
  operator: string;
  label: string;
  shape: string;
}

export interface CachedView {
  when: "peak" | "reserved-peak" | "end";
  reserved_bytes: number;
  active_bytes: number;
  allocated_bytes: number;
  pending_bytes: number;
  whole_segments_bytes: number;
  split_remainders_bytes: number;
  expandable_bytes: number;
}

export interface CachingFailureView {
  at_ns: number;
  asked_bytes: number | null;
  device_free_bytes: number | null;
  allocated_bytes: number;
  reserved_bytes: number;
  op: string;
  stack: string[];
}

export interface CachingView {
  reserved_peak_bytes: number;
  reserved_peak_at_ns: number | null;
  active_peak_bytes: number;
  split_peak_bytes: number;
  moments: CachedView[];
  streams: StreamView[];
  failures: CachingFailureView[];
}

export interface ChunkView {
  address: number;
  bytes: number;
  requested_bytes: number | null;
  op: string;
}

export interface ChurningView {
  op: string;
  layer: string;
  steps: number;
  sizes: number;
  smallest_bytes: number;
  largest_bytes: number;
  total_bytes: number;
}

export interface Diff {
  kind: string;
  runs: string[];
  headline: string;
  verdict: DiffVerdictView;
  sides: SideView[];
  rows: DiffRow[];
  ranks: RankChangeView[];
  ranks_grown: number;
  gate: "pass" | "fail" | "unknown" | "none";
  fail_over?: string;
  alarms: AlarmView[];
  tolerated: AlarmView[];
  warnings: Warning[];
  unknowns: Unknown[];
}

export interface DiffRow {
  what: string;
  by: "device" | "role" | "op" | "layer" | "step";
  figure: "peak" | "ever" | "at-peak" | "in-use";
  pool: string;
  device: string;
  layer: string;
  role: string;
  phase?: "train" | "validation" | "predict" | "other";
  epoch?: number;
  step?: number;
  bytes: (number | null)[];
  low_bytes: (number | null)[];
  high_bytes: (number | null)[];
  delta_bytes: number | null;
  deltas_bytes: (number | null)[];
  spread_bytes: number | null;
  within_spread: boolean;
}

export interface DiffVerdictView {
  word: "more" | "less" | "same" | "not-comparable";
  run: string | null;
  base_bytes: number | null;
  delta_bytes: number | null;
}

export interface DifferenceView {
  what: string;
  owner: string;
  bytes: number;
}

export interface EpochView {
  pool: string;
  host: string;
  pid: number | null;
  fit: number | null;
  epoch: number;
  begin_ns: number;
  peak_bytes: number | null;
  current_bytes: number | null;
}

export interface FailureView {
  headline: string;
  outcome: "ended-job" | "unknown" | "went-on" | "served-later";
  allocator: string | null;
  dialect: "bfc-a" | "bfc-b" | "bfc-c" | "bfc-d" | "bfc" | "tensorflow-error" | "jax-error" | "cuda-malloc-async" | "pytorch" | "pytorch-async" | "driver-refusal" | "tpu" | "library" | "torch-snapshot" | "memory-dump";
  platform: "cuda" | "hip" | "xpu" | "npu" | "mlu" | "musa" | "metal" | "tpu" | "host" | "other" | null;
  library: string | null;
  requested_bytes: number | null;
  requested_low_bytes: number | null;
  requested_high_bytes: number | null;
  rounded_bytes: number | null;
  rounded_low_bytes: number | null;
  rounded_high_bytes: number | null;
  op: string | null;
  shape: string | null;
  dtype: string | null;
  device: string | null;
  executable: string | null;
  limit_bytes: number | null;
  limit_low_bytes: number | null;
  limit_high_bytes: number | null;
  limit_set_by: string | null;
  pool_bytes: number | null;
  in_use_bytes: number | null;
  in_use_low_bytes: number | null;
  in_use_high_bytes: number | null;
  free_bytes: number | null;
  free_low_bytes: number | null;
  free_high_bytes: number | null;
  largest_free_bytes: number | null;
  unallocated_bytes: number | null;
  unallocated_low_bytes: number | null;
  unallocated_high_bytes: number | null;
  slack_bytes: number | null;
  slack_low_bytes: number | null;
  slack_high_bytes: number | null;
  verdict: "device" | "fragmented" | "slack" | "exhausted" | "limit" | null;
  open_verdicts: ("device" | "fragmented" | "slack" | "exhausted" | "limit")[];
  short_by_bytes: number | null;
  short_by_low_bytes: number | null;
  short_by_high_bytes: number | null;
  device_total_bytes: number | null;
  device_free_bytes: number | null;
  this_process_bytes: number | null;
  other_processes_bytes: number | null;
  other_processes_low_bytes: number | null;
  other_processes_high_bytes: number | null;
  driver_refused_bytes: number | null;
  needs_at_least_bytes: number | null;
  program_needs_bytes: number | null;
  program_budget_bytes: number | null;
  attempts: number;
  told_by: WitnessView[];
  regions: RegionView[];
  bridge: BridgeView | null;
  holders: HolderView[];
  held: HeldThenView | null;
  buffers: BufferView[];
  advice: AdviceView[];
}

export interface FindingView {
  rule: string;
  bytes: number;
  text: string;
  fix: string;
  verify: string;
}

export interface FirstFailureView {
  rank: number;
  host: string;
  at_once: number[];
  later: number[];
  lost_peers: number[];
  killed: number[];
  clock_residual_ns: number | null;
}

export interface GroupView {
  failures: number[];
  verdict: "device" | "fragmented" | "slack" | "exhausted" | "limit" | null;
}

export interface HardwareView {
  vendor: "AMD" | "NVIDIA" | null;
  architecture: string;
  memory_bytes: number | null;
}

export interface HeldThenView {
  pid: number;
  pool: string;
  device: string;
  shown_by: "failure" | "snapshot" | "trace" | "newest-trace";
  window: number | null;
  after_step: number | null;
  in_use_bytes: number;
  slack_bytes: number;
  owners: OwnerView[];
  other_owners: number;
  other_owners_bytes: number;
  before_bytes: number | null;
  growth: string | null;
  signal: number | null;
  last_in_use_bytes: number | null;
}

export interface HeldView {
  time_ns: number | null;
  in_use_bytes: number;
  named_bytes: number;
  unnamed_bytes: number;
  slack_bytes: number;
  before_recording_bytes: number;
  by_role: Record<"parameters" | "gradients" | "optimizer" | "activations" | "inputs" | "state" | "temporaries" | "unknown", number>;
  rows: Row[];
  rest?: Rest;
}

export interface HolderView {
  bytes: number;
  count: number;
  chunk_bytes: number;
  requested_bytes: number | null;
  op: string;
}

export interface HostClockView {
  host: string;
  ranks: number;
  by: "reference" | "steps" | "same-machine" | "wall-clock";
  steps: number;
  wall_ahead_ns: number | null;
  drift_ns: number;
  residual_ns: number | null;
}

export interface InventoryView {
  host: string;
  pid: number | null;
  role: "parameters" | "gradients" | "optimizer" | "activations" | "inputs" | "state" | "temporaries" | "unknown";
  variables: number;
  bytes: number;
  in_pool_bytes: number | null;
}

export interface LedgerView {
  host: string | null;
  device: string;
  at_ns: number;
  moment: "peak" | "traced-peak" | "highest-reading" | "last-reading" | "process-peak" | "end" | "asked";
  told_at_ns: number | null;
  line: "device total" | "driver reserved" | "free" | "processes" | "this job" | "other process" | "unattributed" | "context at start" | "pool" | "context, pool and outside" | "pool and the program's own" | "in use" | "cached free" | "context, cached and outside" | "cached and the program's own" | "slack" | "before the recording" | "outside the pools" | "context and outside the pools" | "pool not resident" | "the program's own" | "context" | "code, streams and libraries" | "code" | "first launches" | "limits" | "streams" | "events" | "graphs" | "library memory" | "program memory" | "driver pool" | "pinned memory" | "copies and synchronization" | "other driver calls" | "page rounding" | "unexplained" | "parameters" | "gradients" | "optimizer" | "activations" | "inputs" | "state" | "temporaries" | "unknown";
  detail: string;
  growths: number | null;
  first_ns: number | null;
  last_ns: number | null;
  library: string | null;
  count: number | null;
  python: string | null;
  pid: number | null;
  part_of: number | null;
  depth: number;
  bytes: number | null;
  source: "driver" | "calls" | "host" | "framework" | "trace" | "replay" | "derived" | "estimated";
  reason: string;
}

export interface LongView {
  bytes: number;
  op: string;
  layer: string;
  role: string;
  shape: string;
  dtype: string;
  born_ns: number;
  freed_ns: number | null;
  held_ns: number;
  byte_seconds: number;
}

export interface MarkView {
  host: string;
  pid: number | null;
  kind: "step" | "call" | "epoch" | "phase" | "mark" | "trace" | "retrace" | "setting" | "exception" | "end";
  label: string;
  step: number | null;
  time_ns: number;
  device: string;
  current_bytes: number | null;
  peak_bytes: number | null;
}

export interface OomReport {
  kind: string;
  headline: string;
  verdict: OomVerdictView;
  files: string[];
  failures: FailureView[];
  groups: GroupView[];
  killed: HeldThenView | null;
  soft: SoftView;
  warnings: Warning[];
  unknowns: Unknown[];
}

export interface OomVerdictView {
  word: "none" | "unknown" | "went-on" | "killed" | "device" | "fragmented" | "slack" | "exhausted" | "limit";
  failures: number;
  requested_bytes: number | null;
  short_by_bytes: number | null;
}

export interface OutlierView {
  rank: number;
  compared_with: number;
  difference_bytes: number;
  parts: DifferenceView[] | null;
}

export interface OwnerView {
  role: "parameters" | "gradients" | "optimizer" | "activations" | "inputs" | "state" | "temporaries" | "unknown";
  layer: string;
  source: string;
  bytes: number;
  count: number;
  before_bytes: number | null;
  before_count: number | null;
  evidence: string;
}

export interface PatternsView {
  steps: number;
  repeated_requests: number | null;
  repeated_bytes: number | null;
  steady_from_step: number | null;
  churning_ops: number;
  churning: ChurningView[];
  pool_bytes: number | null;
  padded_pool_bytes: number | null;
}

export interface PeakPartView {
  what: string;
  bytes: number;
}

export interface PeakPlaceView {
  fit: number | null;
  epoch: number | null;
  phase: "train" | "validation" | "predict" | "other";
  step: number | null;
}

export interface PhaseView {
  pool: string;
  host: string;
  pid: number | null;
  fit: number | null;
  phase: "train" | "validation" | "predict" | "other";
  how: "keras" | "trainer" | "api" | "trace" | "inferred";
  steps: number;
  batches: number;
  first_peak_bytes: number | null;
  later_peak_bytes: number | null;
  later_peaks_known: number;
  current_bytes: number | null;
}

export interface PoolView {
  name: string;
  device: string;
  hardware?: HardwareView;
  host: string;
  pid: number | null;
  rank: number | null;
  from_start: boolean | null;
  limit_bytes: number | null;
  limit_by: "built-in" | "environment" | "run" | "framework" | null;
  allocs: number | null;
  frees: number | null;
  peak_bytes: number | null;
  lifetime_peak_bytes: number | null;
  peak_at_ns: number | null;
  moment: "peak" | "dump" | "program" | "failure";
  window: number | null;
  peak_in: PeakPlaceView | null;
  rose_in?: PeakPlaceView;
  at_peak: HeldView | null;
  at?: HeldView;
  fragmentation_at_peak: number | null;
  before_recording: BeforeView | null;
  caching?: CachingView;
  replay?: ReplayedView;
  patterns?: PatternsView;
  held_long: LongView[];
}

export interface ProcessView {
  id: string;
  host: string;
  pid: number;
  rank: number | null;
  python: string;
  frameworks: string[];
  backend: string | null;
  forked_from: string | null;
}

export interface RankChangeView {
  rank: number;
  peak_bytes: (number | null)[];
  deltas_bytes: (number | null)[];
}

export interface RankGroupView {
  ranks: number[];
  outliers: number[];
  lowest_bytes: number;
  highest_bytes: number;
  typical: number;
}

export interface RankPeakView {
  rank: number;
  peak_bytes: number;
  headroom_bytes: number | null;
}

export interface RankView {
  rank: number;
  host: string;
  local_rank: number | null;
  node_rank: number | null;
  attempt: number | null;
  task_role: "chief" | "worker" | "ps" | "evaluator" | null;
  launcher: "torchrun" | "rank-variables" | "open-mpi" | "pmix" | "slurm" | "jax" | "torch-distributed" | "tf-config" | "kubernetes" | null;
  pids: number[];
  pool: string | null;
  device: string | null;
  peak_bytes: number | null;
  peak_in: PeakPlaceView | null;
  limit_bytes: number | null;
  headroom_bytes: number | null;
  steps: number;
  end: "out-of-memory" | "collective" | "exception" | "killed" | "done" | "unknown";
}

export interface RanksView {
  job: string | null;
  world_size: number | null;
  missing: number[];
  main: number | null;
  earlier_attempts: number;
  highest: RankPeakView | null;
  lowest: RankPeakView | null;
  tightest: RankPeakView | null;
  grouping: "alike" | "regular" | "varied" | "few";
  groups: RankGroupView[];
  outliers: OutlierView[];
  first_failure: FirstFailureView | null;
  hosts: HostClockView[];
  ranks: RankView[];
  sentences: string[];
}

export interface RegionView {
  address: number;
  bytes: number;
  in_use_bytes: number;
  free_bytes: number;
  largest_free_bytes: number;
  chunks: number;
  map: string;
}

export interface ReplayedView {
  exact: boolean;
  preset: string;
  allocs: number;
  address_matches: number;
  growths: number;
  pool_bytes: number;
  pool_at_peak_bytes: number;
  cached_at_peak_bytes: number;
  joined_bytes: number;
  load_bytes: number;
}

export interface Report {
  kind: string;
  subject: string[];
  headline: string;
  parts: PeakPartView[];
  explanation: string[];
  verdict: ReportVerdict;
  source: SourceView;
  pools: PoolView[];
  steps: StepView[];
  run?: RunView;
  ranks?: RanksView;
  epochs: EpochView[];
  phases: PhaseView[];
  windows: WindowView[];
  marks: MarkView[];
  inventory: InventoryView[];
  ledger: LedgerView[];
  ledger_at_end: LedgerView[];
  findings: FindingView[];
  warnings: Warning[];
  unknowns: Unknown[];
}

export interface ReportVerdict {
  word: "out-of-memory" | "not-traced" | "unknown" | "full" | "fits";
  pool: string | null;
  device: string | null;
  peak_bytes: number | null;
  limit_bytes: number | null;
}

export interface Rest {
  rows: number;
  bytes: number;
  count: number;
}

export interface Row {
  bytes: number;
  count: number;
  op: string;
  layer: string;
  role: string;
  shape: string;
  dtype: string;
  source: string;
  evidence: string;
  variable: string;
  stack: string[];
  slack_bytes: number;
  age_ns: number | null;
  op_calls: number | null;
  op_time_ns: number | null;
}

export interface RunView {
  command: string[];
  exit: string | null;
  lasted_ns: number | null;
  processes: ProcessView[];
}

export interface SideView {
  name: string;
  files: string[];
  format: string;
  framework: string | null;
  repeats: number;
}

export interface SoftView {
  text: string | null;
  count: number;
  low_bytes: number | null;
  high_bytes: number | null;
  pools: string[];
  driver_refusals: number;
  largest_refusal_bytes: number | null;
}

export interface SourceView {
  format: string;
  framework: "tensorflow" | "jax" | "pytorch" | null;
  files: string[];
  clock: string;
  wall_clock_zero_ns: number | null;
}

export interface StepView {
  pool: string;
  host: string;
  pid: number | null;
  step: number;
  batches: number;
  fit: number | null;
  epoch: number | null;
  phase: "train" | "validation" | "predict" | "other";
  how: "keras" | "trainer" | "api" | "trace" | "inferred";
  name: string;
  begin_ns: number;
  peak_bytes: number | null;
  current_bytes: number | null;
}

export interface StreamView {
  stream: number;
  private_pool: string;
  segments: number;
  expandable_segments: number;
  reserved_bytes: number;
  allocated_bytes: number;
  active_bytes: number;
}

export interface Unknown {
  path: string;
  reason: string;
  switch: string | null;
}

export interface Warning {
  code: string;
  text: string;
  hint: string;
}

export interface WindowView {
  host: string;
  pid: number;
  window: number;
  opened_for: "start" | "fit" | "validation" | "predict" | "retrace" | "rise" | "program" | "oom" | "request" | null;
  state: "begun" | "stopped" | "written" | "failed" | "lost" | null;
  begin_ns: number | null;
  end_ns: number | null;
  path: string | null;
  is_read: boolean;
  peak_bytes: number | null;
}

export interface WitnessView {
  file: string;
  line: number | null;
  time: string;
}
