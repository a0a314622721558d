"""What the callbacks of `vramline.keras`, `vramline.huggingface` and `vramline.lightning` consist of."""
