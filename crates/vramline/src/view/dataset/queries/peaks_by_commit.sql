-- What is the peak of each script, by commit and device?
SELECT
    script, commit, framework, device_name,
    COUNT(DISTINCT recording) AS recordings,
    MAX(peak_bytes) AS highest_peak_bytes,
    MIN(peak_bytes) AS lowest_peak_bytes,
    MAX(started_on) AS newest
FROM pool_use
WHERE peak_bytes IS NOT NULL
GROUP BY script, commit, framework, device_name
ORDER BY highest_peak_bytes DESC, script NULLS LAST, commit NULLS LAST, framework NULLS LAST, device_name NULLS LAST
