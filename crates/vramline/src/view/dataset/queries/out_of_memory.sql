-- Why did allocations fail, and how much memory was missing?
SELECT
    f.verdict, j.framework, f.outcome,
    COUNT(*) AS failures,
    COUNT(DISTINCT f.recording) AS recordings,
    MAX(f.requested_bytes) AS largest_request_bytes,
    MIN(f.short_by_bytes) AS least_short_by_bytes,
    MAX(f.short_by_bytes) AS most_short_by_bytes
FROM failures f
JOIN jobs j ON j.job = f.job AND j.recording = f.recording
GROUP BY f.verdict, j.framework, f.outcome
ORDER BY failures DESC, f.verdict NULLS LAST, j.framework NULLS LAST, f.outcome
