-- How much memory do processes hold outside their pools: context, libraries, other allocators?
SELECT
    d.name AS device_name, j.framework, d.driver_version,
    COUNT(*) AS devices,
    MIN(d.context_bytes) AS least_context_bytes,
    MAX(d.context_bytes) AS most_context_bytes,
    MAX(d.outside_peak_bytes) AS most_outside_bytes
FROM devices d
JOIN jobs j ON j.job = d.job AND j.recording = d.recording
WHERE d.context_bytes IS NOT NULL OR d.outside_peak_bytes IS NOT NULL
GROUP BY d.name, j.framework, d.driver_version
ORDER BY most_outside_bytes DESC NULLS LAST, device_name NULLS LAST, framework NULLS LAST, driver_version NULLS LAST
