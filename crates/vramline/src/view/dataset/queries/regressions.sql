-- Which scripts need more memory since a date (parameters.since) than before?
SELECT
    script, framework, device_name,
    MAX(CASE WHEN started_on < since THEN peak_bytes END) AS before_bytes,
    MAX(CASE WHEN started_on >= since THEN peak_bytes END) AS since_bytes,
    MAX(CASE WHEN started_on >= since THEN peak_bytes END) - MAX(CASE WHEN started_on < since THEN peak_bytes END) AS growth_bytes
FROM pool_use
CROSS JOIN parameters
WHERE peak_bytes IS NOT NULL AND started_on IS NOT NULL
GROUP BY script, framework, device_name
HAVING MAX(CASE WHEN started_on >= since THEN peak_bytes END) > MAX(CASE WHEN started_on < since THEN peak_bytes END)
ORDER BY growth_bytes DESC, script NULLS LAST, framework NULLS LAST, device_name NULLS LAST
