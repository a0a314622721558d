-- What would a larger batch (parameters.batch_factor) need? An estimate: `vramline plan` predicts it.
-- Activations, inputs and temporaries grow with the batch; parameters, gradients and optimizer state do not.
SELECT
    script, framework, recording, host, device, pool_number,
    in_use_bytes, batch_bytes,
    CAST(in_use_bytes + (batch_factor - 1) * batch_bytes AS BIGINT) AS would_need_bytes,
    capacity_bytes,
    in_use_bytes + (batch_factor - 1) * batch_bytes <= capacity_bytes AS fits
FROM pool_use
CROSS JOIN parameters
WHERE moment = 'peak' AND batch_bytes > 0
ORDER BY would_need_bytes DESC, recording, host, pool_number
