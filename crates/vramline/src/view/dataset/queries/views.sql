-- What the questions need beside the tables. They run on DuckDB and on Spark, and so does this.

-- The numbers that questions use. Replace this view to ask with others.
CREATE OR REPLACE TEMPORARY VIEW parameters AS
SELECT
    DATE '2000-01-01' AS since,          -- regressions: what counts as new
    CAST(2 AS DOUBLE) AS batch_factor;   -- larger_batch: how much larger

-- Pools with their job, the highest peak that is known, and the memory that they could have had.
CREATE OR REPLACE TEMPORARY VIEW pool_use AS
SELECT
    p.job, p.recording, p.host, p.pid, p.rank, p.pool_number, p.pool, p.device,
    j.script, j.command, j.commit, j.framework, j.started_ns, j.started_on,
    d.name AS device_name,
    GREATEST(p.peak_bytes, p.lifetime_peak_bytes) AS peak_bytes,
    p.reserved_bytes, p.joined_bytes, p.moment, p.in_use_bytes,
    p.activations_bytes + p.inputs_bytes + p.temporaries_bytes AS batch_bytes,
    CASE WHEN p.limit_by <> 'built-in' THEN p.limit_bytes END AS limit_bytes,
    COALESCE(CASE WHEN p.limit_by <> 'built-in' THEN p.limit_bytes END, d.total_bytes) AS capacity_bytes
FROM pools p
JOIN jobs j ON j.job = p.job AND j.recording = p.recording
LEFT JOIN devices d ON d.job = p.job AND d.recording = p.recording AND d.host = p.host AND d.device = p.device;

-- Steps in the order of time, without the first step of each pool, which builds what the others use.
CREATE OR REPLACE TEMPORARY VIEW later_steps AS
SELECT * FROM (
    SELECT
        s.job, s.recording, s.host, s.pid, s.pool, s.step, s.phase, s.begin_ns, s.peak_bytes, s.current_bytes,
        ROW_NUMBER() OVER (PARTITION BY s.job, s.recording, s.host, s.pid, s.pool ORDER BY s.begin_ns, s.step) AS place,
        COUNT(*) OVER (PARTITION BY s.job, s.recording, s.host, s.pid, s.pool) AS steps
    FROM steps s
    WHERE s.phase = 'train' AND s.current_bytes IS NOT NULL
) numbered
WHERE place > 1;
