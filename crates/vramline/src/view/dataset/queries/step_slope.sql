-- How much does memory in use grow from step to step, after the first one?
SELECT
    j.script, s.recording, s.host, s.pid, s.pool,
    s.steps,
    MIN(CASE WHEN s.place = 2 THEN s.current_bytes END) AS second_step_bytes,
    MIN(CASE WHEN s.place = s.steps THEN s.current_bytes END) AS last_step_bytes,
    CAST(MIN(CASE WHEN s.place = s.steps THEN s.current_bytes END) - MIN(CASE WHEN s.place = 2 THEN s.current_bytes END) AS DOUBLE)
        / (s.steps - 2) AS bytes_per_step
FROM later_steps s
JOIN jobs j ON j.job = s.job AND j.recording = s.recording
WHERE s.steps > 2
GROUP BY j.script, s.recording, s.host, s.pid, s.pool, s.steps
ORDER BY bytes_per_step DESC, s.recording, s.host, s.pid NULLS LAST, s.pool
