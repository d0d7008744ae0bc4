"""What decides by held-out samples: references, bandwidths and λ, all by one rule."""
