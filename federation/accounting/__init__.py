"""From what was released to epsilon: events, three accounts side by side, calibration. Read next: `events`."""
