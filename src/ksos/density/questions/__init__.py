"""Questions about a sum of terms: each is written once, in the file that is named after it."""
