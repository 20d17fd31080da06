"""Effects of heads, losses and a learned T on accuracy, probabilities and label errors."""
