-- Which scripts ran with versions that differ?
SELECT
    j.script, p.framework,
    COUNT(DISTINCT p.recording) AS recordings,
    COUNT(DISTINCT p.framework_version) AS framework_versions,
    MIN(p.framework_version) AS one_framework_version,
    MAX(p.framework_version) AS other_framework_version,
    COUNT(DISTINCT p.keras_version) AS keras_versions,
    COUNT(DISTINCT p.python) AS python_versions,
    COUNT(DISTINCT j.driver_version) AS driver_versions
FROM processes p
JOIN jobs j ON j.job = p.job AND j.recording = p.recording
GROUP BY j.script, p.framework
HAVING COUNT(DISTINCT p.framework_version) > 1 OR COUNT(DISTINCT p.keras_version) > 1
    OR COUNT(DISTINCT p.python) > 1 OR COUNT(DISTINCT j.driver_version) > 1
ORDER BY recordings DESC, j.script NULLS LAST, p.framework NULLS LAST
