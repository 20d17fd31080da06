"""The linear discriminant of noisy labels."""
