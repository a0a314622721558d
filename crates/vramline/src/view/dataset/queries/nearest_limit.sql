-- Which devices came nearest to their limit?
SELECT
    host, device, device_name, recording, script, rank,
    peak_bytes, capacity_bytes,
    capacity_bytes - peak_bytes AS headroom_bytes,
    CAST(peak_bytes AS DOUBLE) / NULLIF(CAST(capacity_bytes AS DOUBLE), 0) AS share
FROM pool_use
WHERE peak_bytes IS NOT NULL AND capacity_bytes IS NOT NULL
ORDER BY share DESC NULLS LAST, host, device, recording, pool_number
