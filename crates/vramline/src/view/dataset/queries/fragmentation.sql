-- Which pools are larger than their requests would need without fragmentation?
SELECT
    script, framework, recording, host, device, pool, pool_number,
    reserved_bytes, joined_bytes,
    reserved_bytes - joined_bytes AS lost_bytes,
    CAST(reserved_bytes - joined_bytes AS DOUBLE) / NULLIF(CAST(reserved_bytes AS DOUBLE), 0) AS share
FROM pool_use
WHERE reserved_bytes > joined_bytes
ORDER BY lost_bytes DESC, recording, host, pool_number
