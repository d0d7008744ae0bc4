"""What everything stands on: arrays, memory, validation, names, files, time and progress."""
