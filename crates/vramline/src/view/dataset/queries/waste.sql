-- Which scripts take memory from the driver and never use it?
SELECT
    script, framework,
    COUNT(*) AS pools,
    CAST(SUM(reserved_bytes - peak_bytes) AS BIGINT) AS never_used_bytes,
    MAX(reserved_bytes - peak_bytes) AS worst_bytes,
    CAST(SUM(reserved_bytes - peak_bytes) AS DOUBLE) / NULLIF(CAST(SUM(reserved_bytes) AS DOUBLE), 0) AS share
FROM pool_use
WHERE reserved_bytes IS NOT NULL AND peak_bytes IS NOT NULL AND moment = 'peak'
GROUP BY script, framework
ORDER BY never_used_bytes DESC, script NULLS LAST, framework NULLS LAST
