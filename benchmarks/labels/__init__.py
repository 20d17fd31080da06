"""Effects of heads, losses and a learned T on accuracy, probabilities and wrong labels."""
