-- Who holds the memory of the peaks, by role and layer?
SELECT
    j.script,
    CASE WHEN p.holder = 'blocks' THEN p.role ELSE p.holder END AS role,
    p.layer,
    COUNT(DISTINCT p.recording) AS recordings,
    CAST(SUM(p.bytes) AS BIGINT) AS bytes,
    CAST(SUM(p.count) AS BIGINT) AS blocks
FROM peaks p
JOIN jobs j ON j.job = p.job AND j.recording = p.recording
GROUP BY j.script, CASE WHEN p.holder = 'blocks' THEN p.role ELSE p.holder END, p.layer
ORDER BY bytes DESC, script NULLS LAST, role, layer
