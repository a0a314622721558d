-- Which jobs leak, or grow for another reason?
SELECT
    j.script, f.rule, f.recording, j.started_on, f.bytes, f.text, f.fix
FROM findings f
JOIN jobs j ON j.job = f.job AND j.recording = f.recording
WHERE f.rule IN ('leak', 'staircase', 'growing-inputs')
ORDER BY f.bytes DESC, f.recording, f.rule, f.text
