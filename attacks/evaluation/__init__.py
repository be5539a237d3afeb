"""One attack against one protection, over batches and seeds. Read `trial` first, then `exchange`, then `evaluate`."""
