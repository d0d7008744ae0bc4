"""The densities to choose from, the embeddings that compare them, and the rules that make both."""
