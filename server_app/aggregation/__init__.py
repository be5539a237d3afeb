"""When updates are applied and how much each weighs: one rule a file (`fedavg`), behind one interface (`rule`)."""
